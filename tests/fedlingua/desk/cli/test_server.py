"""`fedlingua server`: set-up by the command, the keys that may join, and how `flwr` reaches the server."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.consent.keys import make_key
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.server import _keys, profile_of
from fedlingua.desk.deployment.programs import control_address
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server


def made(folder: Path, insecure: bool = False) -> ServerFile:
    return init_server(folder / "server", "north", [], "0.0.0.0:19092", "127.0.0.1:19093", insecure)


def join(folder: Path, name: str) -> tuple[Path, str]:
    key = make_key(folder / f"{name}.key")
    file = folder / f"{name}.toml"
    file.write_text(f'[[site]]\nname = "{name}"\ndirection = "de-fr"\npublic-key = "{key}"\n')
    return file, key


def append(server: ServerFile, text: str) -> None:
    server.federation.write_text(server.federation.read_text() + text)


def test_a_server_without_sites_starts_with_no_keys(tmp_path: Path) -> None:
    assert _keys(made(tmp_path)) == {}


def test_each_site_has_its_key(tmp_path: Path) -> None:
    server = made(tmp_path)
    expected = {}
    for name in ("clinic", "court"):
        file, expected[name] = join(tmp_path, name)
        add_site(server, file)
    assert _keys(server) == expected


def test_a_site_without_a_key_or_with_a_damaged_one_cannot_join(tmp_path: Path) -> None:
    server = made(tmp_path)
    file, key = join(tmp_path, "clinic")
    add_site(server, file)
    whole = server.federation.read_text()
    append(server, '[[site]]\nname = "bank"\ndirection = "de-fr"\n')
    with pytest.raises(DeploymentError, match="site 'bank' has no public-key"):
        _keys(server)
    server.federation.write_text(whole.replace(key, key[:-9]))
    with pytest.raises(ConfigError, match=r"federation\.toml, site clinic: the key is damaged"):
        _keys(server)


def test_an_insecure_server_asks_for_no_keys(tmp_path: Path) -> None:
    server = made(tmp_path, insecure=True)
    append(server, '[[site]]\nname = "bank"\ndirection = "de-fr"\n')
    assert _keys(server) == {}


@pytest.mark.parametrize("insecure", [True, False])
def test_flwr_reaches_the_server_with_its_authority_unless_insecure(tmp_path: Path, insecure: bool) -> None:
    server = made(tmp_path, insecure)
    profile = profile_of(server)
    assert (profile.address, profile.insecure, profile.local) == (control_address(server), insecure, False)
    assert profile.root_certificates == ("" if insecure else str(server.authority))


def test_init_and_add_go_by_the_command_and_say_what_comes_next(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    begun = CliRunner().invoke(app, ["server", "init", "--to", str(folder), "--host", "FL.example.org"])
    assert begun.exit_code == 0, begun.output
    assert str(folder / "certificates" / "ca.crt") in begun.output
    assert "certificate for: fl.example.org" in begun.output
    assert "insecure" not in begun.output
    files = [str(join(tmp_path, name)[0]) for name in ("clinic", "court")]
    added = CliRunner().invoke(app, ["server", "add", str(folder), *files])
    assert added.exit_code == 0, added.output
    assert [line.split()[0] for line in added.output.splitlines()] == ["clinic", "court"]


def test_an_insecure_server_is_warned_of(tmp_path: Path) -> None:
    begun = CliRunner().invoke(app, ["server", "init", "--to", str(tmp_path / "server"), "--insecure"])
    assert begun.exit_code == 0, begun.output
    assert "warning: insecure = true" in begun.output
