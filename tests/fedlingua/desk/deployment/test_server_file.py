"""A server's file and its federation: made, read back, and entered into."""

import tomllib
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SplitRules
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server, read_server_file
from fedlingua.desk.deployment.site_setup import make_key


def made(folder: Path, name: str = "north", insecure: bool = True) -> ServerFile:
    return init_server(folder / "server", name, ["fl.example.org"], "0.0.0.0:9092", "127.0.0.1:9093", insecure)


def join(folder: Path, name: str = "clinic", direction: str = "de-fr", key: str = "") -> Path:
    file = folder / f"{name}.join.toml"
    line = f'public-key = "{key}"\n' if key else ""
    file.write_text(f'[[site]]\nname = "{name}"\ndirection = "{direction}"\n{line}')
    return file


def server_file(folder: Path, text: str) -> Path:
    (folder / "server.toml").write_text(text)
    return folder / "server.toml"


def test_an_empty_file_takes_every_default_beside_itself(tmp_path: Path) -> None:
    server = read_server_file(server_file(tmp_path, ""))
    assert (server.hosts, server.fleet, server.control, server.insecure) == ((), "0.0.0.0:9092", "127.0.0.1:9093", False)
    places = [server.federation, server.experiment, server.certificates, server.authority, server.home, server.runs]
    assert [str(place.relative_to(tmp_path)) for place in places] == [
        "federation.toml",
        "experiment.toml",
        "certificates",
        "certificates/ca.crt",
        "flower",
        "runs",
    ]


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    made(tmp_path)
    assert read_server_file(tmp_path / "server") == read_server_file(tmp_path / "server" / "server.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("insecure = 1", "insecure = 1; wanted true or false"),
        ('hosts = "a"', "hosts = 'a'; wanted a list"),
        ('fleet = "9092"', "fleet = '9092'; wanted host:port"),
        ('fleet = "0.0.0.0:0"', "fleet = '0.0.0.0:0'; wanted host:port"),
        ('control = "127.0.0.1:65536"', "control = '127.0.0.1:65536'; wanted host:port"),
        ('contrl = "127.0.0.1:1"', "there is no such key; did you mean 'control'?"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_server_file(server_file(tmp_path, text))
    assert str(caught.value).startswith("server.toml: ")
    assert told in str(caught.value)


def test_a_new_server_has_its_certificates_and_reads_back(tmp_path: Path) -> None:
    server = made(tmp_path, insecure=False)
    assert (server.path, server.hosts, server.insecure) == (tmp_path / "server" / "server.toml", ("fl.example.org",), False)
    assert sorted(file.name for file in server.certificates.iterdir()) == ["ca.crt", "ca.key", "server.crt", "server.key"]
    assert sorted(file.name for file in server.path.parent.glob("[!.]*")) == [
        "certificates",
        "experiment.toml",
        "federation.toml",
        "server.toml",
    ]


def test_an_insecure_server_has_no_certificates(tmp_path: Path) -> None:
    server = made(tmp_path)
    assert server.insecure
    assert not server.certificates.exists()


@pytest.mark.parametrize("name", ["north", 'a "north" \\ süd'])
def test_the_new_federation_splits_by_the_shared_side_under_its_name(tmp_path: Path, name: str) -> None:
    server = made(tmp_path, name)
    add_site(server, join(tmp_path))
    federation = read_federation(server.federation, Path())
    assert federation.name == name
    assert federation.rules.split == SplitRules("shared-side", name, 0.8, 0.1, 0.1)


@pytest.mark.parametrize("there", ["server.toml", "federation.toml"])
def test_a_folder_that_is_a_servers_already_is_left_alone(tmp_path: Path, there: str) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / there).write_text("old")
    with pytest.raises(ConfigError, match=f"{there} already exists"):
        made(tmp_path)
    assert [(file.name, file.read_text()) for file in (tmp_path / "server").iterdir()] == [(there, "old")]


@pytest.mark.parametrize(
    ("hosts", "fleet"), [(["https://fl.example.org"], "0.0.0.0:9092"), (["fl.example.org"], "9092")], ids=["host", "address"]
)
def test_nothing_is_made_for_a_host_or_address_that_is_none(tmp_path: Path, hosts: list[str], fleet: str) -> None:
    with pytest.raises(ConfigError):
        init_server(tmp_path / "server", "north", hosts, fleet, "127.0.0.1:9093", False)
    assert not (tmp_path / "server").exists()


def test_a_site_is_entered_with_its_key_and_the_rest_stays(tmp_path: Path) -> None:
    server, line = made(tmp_path, insecure=False), make_key(tmp_path / "site.key")
    before = server.federation.read_text()
    assert add_site(server, join(tmp_path, key=line)) == "clinic"
    assert server.federation.read_text().startswith(before.rstrip("\n"))
    (site,) = read_federation(server.federation, Path()).sites
    assert (site.name, site.direction, site.public_key, site.corpus) == ("clinic", Direction("de", "fr"), line, None)
    assert not list(server.federation.parent.glob(".f*"))


def test_a_site_with_text_in_one_language_is_entered_with_it(tmp_path: Path) -> None:
    server = made(tmp_path)
    (tmp_path / "clinic.toml").write_text('[[site]]\nname = "clinic"\nlanguage = "es"\n')
    add_site(server, tmp_path / "clinic.toml")
    assert read_federation(server.federation, Path()).sites[0].direction == Direction("es", "es")


def test_sites_are_entered_one_after_the_other(tmp_path: Path) -> None:
    server = made(tmp_path)
    for name in ("clinic", "court"):
        add_site(server, join(tmp_path, name))
    assert read_federation(server.federation, Path()).site_names == ["clinic", "court"]


def refused(server: ServerFile, join_file: Path) -> str:
    before = server.federation.read_text()
    with pytest.raises(ConfigError) as caught:
        add_site(server, join_file)
    assert server.federation.read_text() == before
    return str(caught.value)


def test_a_site_that_stands_there_already_stays_and_another_of_its_name_is_refused(tmp_path: Path) -> None:
    server = made(tmp_path)
    file = join(tmp_path)
    file.write_text(file.read_text() * 2)
    for _ in range(2):
        assert add_site(server, file) == "clinic, clinic"
    assert read_federation(server.federation, Path()).site_names == ["clinic"]
    assert "it already has a site 'clinic' with another direction;" in refused(server, join(tmp_path, direction="pl-es"))


def test_a_server_with_authentication_wants_a_key_and_a_whole_one(tmp_path: Path) -> None:
    server, line = made(tmp_path, insecure=False), make_key(tmp_path / "site.key")
    assert "site 'clinic' has no public-key" in refused(server, join(tmp_path))
    assert "clinic.join.toml, site clinic: the key is damaged" in refused(server, join(tmp_path, key=line[:-9]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "wanted [[site]]"),
        ("site = 3\n", "wanted [[site]]"),
        ('[[site]]\ndirection = "de-fr"\n', "site 1: name = ''"),
        ('[[site]]\nname = "a/b"\ndirection = "de-fr"\n', "name = 'a/b'"),
        ('[[site]]\nname = "a"\n', "site a: direction = '' is not a direction"),
        ('[[site]]\nname = "a"\ndirection = "de-xx"\n', "language = 'xx' is not known"),
        ('[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "/etc/passwd"\n', "tsv = '/etc/passwd': there is no such key"),
        ('base = "x"\n[[site]]\nname = "a"\ndirection = "de-fr"\n', "base = 'x': there is no such key"),
    ],
)
def test_a_join_file_that_would_spoil_the_federation_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = join(tmp_path)
    file.write_text(text)
    assert told in refused(made(tmp_path), file)


def test_the_file_that_is_written_says_how_it_was_made(tmp_path: Path) -> None:
    text = made(tmp_path).path.read_text()
    assert text.startswith("# Written by `fedlingua server init`")
    assert tomllib.loads(text)["hosts"] == ["fl.example.org"]


def test_a_control_api_at_an_ipv6_address_is_in_the_certificate(tmp_path: Path) -> None:
    server = init_server(tmp_path / "server", "north", ["fl.example.org"], "0.0.0.0:9092", "[::1]:9093", insecure=False)
    assert (server.certificates / "server.crt").is_file()
