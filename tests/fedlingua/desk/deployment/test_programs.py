"""The command lines of Flower's programs, read back by Flower's own parsers."""

import dataclasses
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

from fedlingua.common.errors import ConfigError
from fedlingua.consent.site_file import SiteFile
from fedlingua.desk import processes
from fedlingua.desk.deployment import programs
from fedlingua.desk.deployment.certificates import make_certificates
from fedlingua.desk.deployment.programs import (
    SITE_FILE,
    control_address,
    superlink_command,
    supernode_command,
)
from fedlingua.desk.deployment.server_file import ServerFile, init_server
from fedlingua.desk.deployment.site_setup import init_site
from fedlingua.desk.processes import over_grpc

grpc_only = pytest.mark.skipif(not over_grpc(), reason="the Flower here speaks HTTP")


def site(folder: Path, insecure: bool = False) -> SiteFile:
    if not insecure:
        make_certificates(folder / "ca", ["fl.example.org"])
    corpus = {"phrasebook": "hospital"}
    return init_site(
        folder / "site", "clinic", "de-fr", corpus, "fl.example.org:9092", None if insecure else folder / "ca" / "ca.crt"
    )[0]


def server(folder: Path, insecure: bool = False) -> ServerFile:
    return init_server(folder / "server", "north", [], "0.0.0.0:19092", "127.0.0.1:19093", insecure)


def test_the_version_of_flower_decides_on_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, grpc in (("1.39.0", True), ("1.40.0", False), ("1.42.1", False), ("2.0", False), ("1.9.0", True)):
        monkeypatch.setattr(processes, "version", lambda name, version=version: version)
        assert over_grpc() is grpc, version


@grpc_only
def test_flower_reads_the_superlinks_line_as_it_is_meant(tmp_path: Path) -> None:
    made = server(tmp_path)
    read = _parse_args_run_superlink().parse_args(superlink_command(made)[1:])
    assert (read.host, read.port, read.fleet_api_address) == ("127.0.0.1", 19093, "0.0.0.0:19092")
    assert (read.fleet_api_type, read.isolation, read.insecure) == ("grpc-rere", "subprocess", False)
    assert read.enable_supernode_auth
    assert read.database == str(made.home / "superlink.db")
    for file in (read.ssl_certfile, read.ssl_keyfile, read.ssl_ca_certfile):
        assert Path(file).is_file()
        assert Path(file).parent == made.certificates


@grpc_only
def test_an_insecure_superlink_gets_no_certificates_and_asks_for_no_keys(tmp_path: Path) -> None:
    command = superlink_command(server(tmp_path, insecure=True))
    assert command[-1] == "--insecure"
    assert not [word for word in command if "ssl" in word or "auth" in word]


@pytest.mark.parametrize(
    ("grpc", "listens", "control"), [(True, "127.0.0.1:19093", "127.0.0.1:19093"), (False, "0.0.0.0:19092", "127.0.0.1:19092")]
)
def test_from_flower_1_40_one_port_serves_sites_and_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grpc: bool, listens: str, control: str
) -> None:
    monkeypatch.setattr(programs, "over_grpc", lambda: grpc)
    made = server(tmp_path)
    command = superlink_command(made)
    assert ":".join(command[command.index(option) + 1] for option in ("--host", "--port")) == listens
    assert ("--fleet-api-address" in command) is grpc
    assert control_address(made) == control
    assert "--enable-supernode-auth" in command
    assert ("--grpc-rere" in supernode_command(site(tmp_path), 1)) is grpc


@grpc_only
def test_flower_reads_the_supernodes_line_as_it_is_meant(tmp_path: Path) -> None:
    made = site(tmp_path)
    read = _parse_args_run_supernode().parse_args(supernode_command(made, 4711, max_retries=1)[1:])
    assert (read.superlink, read.host, read.port, read.max_retries) == ("fl.example.org:9092", "127.0.0.1", 4711, 1)
    assert (read.root_certificates, read.auth_supernode_private_key) == (str(made.authority), str(made.key))
    assert not read.insecure
    assert parse_config_args([read.node_config]) == {SITE_FILE: str(made.path)}


def test_an_insecure_supernode_shows_no_key(tmp_path: Path) -> None:
    command = supernode_command(site(tmp_path, insecure=True), 4711)
    assert command[-1] == "--insecure"
    assert not [word for word in command if "key" in word or "certificates" in word or "retries" in word]


@pytest.mark.parametrize("folder", ["Söhne & Co", "a b=c", "a, b #1", "a${HOME}%s"])
def test_flower_passes_odd_paths_on(tmp_path: Path, folder: str) -> None:
    made = dataclasses.replace(site(tmp_path), path=tmp_path / folder / "site.toml")
    command = supernode_command(made, 4711)
    assert parse_config_args([command[command.index("--node-config") + 1]]) == {SITE_FILE: str(made.path)}


@pytest.mark.parametrize("folder", ["a'b", 'a"b', "a\\b"])
def test_a_path_that_flower_would_not_pass_on_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ConfigError, match="move the site's folder"):
        supernode_command(dataclasses.replace(site(tmp_path), path=tmp_path / folder / "site.toml"), 4711)
