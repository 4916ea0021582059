"""Setting a site up: everything is checked before anything is written, and the join file tells nothing secret."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError, FedlinguaError
from fedlingua.common.languages import Direction
from fedlingua.consent.keys import read_public_key
from fedlingua.consent.site_file import SiteFile
from fedlingua.corpora.read import LineFiles, Notes, TsvFile
from fedlingua.corpora.tmx import TmxFile
from fedlingua.desk.deployment.certificates import make_certificates
from fedlingua.desk.deployment.server_file import add_site, init_server
from fedlingua.desk.deployment.site_setup import init_site

PHRASEBOOK = {"phrasebook": "hospital", "sentences": 40}
ADDRESS = "fl.example.org:9092"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certificates", ["fl.example.org"])
    return (tmp_path / "certificates" / "ca.crt").rename(tmp_path / "from-the-server.crt")


def made(folder: Path, authority: Path | None, **changes: Any) -> tuple[SiteFile, Path]:
    given = {"name": "clinic", "direction": "de-fr", "corpus": PHRASEBOOK, "address": ADDRESS, **changes}
    return init_site(folder / "site", authority=authority, **given)


def test_a_site_has_its_file_key_authority_and_join_file_and_no_more(tmp_path: Path, authority: Path) -> None:
    site, join_file = made(tmp_path, authority)
    there = sorted(str(file.relative_to(tmp_path / "site")) for file in (tmp_path / "site").rglob("*") if file.is_file())
    assert there == [".gitignore", "ca.crt", "clinic.join.toml", "keys/site.key", "keys/site.pub", "site.toml"]
    assert (site.path, join_file) == (tmp_path / "site" / "site.toml", tmp_path / "site" / "clinic.join.toml")
    assert (site.insecure, site.address, site.authority.read_bytes()) == (False, ADDRESS, authority.read_bytes())
    assert [one.name for one in site.sites] == ["clinic"]
    assert site.key.stat().st_mode & 0o777 == 0o600


def test_the_join_file_holds_name_direction_and_public_key_alone(tmp_path: Path, authority: Path) -> None:
    site, join_file = made(tmp_path, authority)
    (entry,) = tomllib.loads(join_file.read_text())["site"]
    assert set(entry) == {"name", "direction", "public-key"}
    assert entry["public-key"] == site.key.with_suffix(".pub").read_text().strip()
    read_public_key(entry["public-key"], "join file")
    assert "PRIVATE" not in join_file.read_text()


def test_the_server_takes_the_join_file(tmp_path: Path, authority: Path) -> None:
    server = init_server(tmp_path / "server", "north", [], "0.0.0.0:9092", "127.0.0.1:9093", insecure=False)
    assert add_site(server, made(tmp_path, authority)[1]) == "clinic"


def test_without_an_authority_there_is_no_tls_and_no_key(tmp_path: Path) -> None:
    site, join_file = made(tmp_path, None)
    assert site.insecure
    assert not site.key.exists()
    assert set(tomllib.loads(join_file.read_text())["site"][0]) == {"name", "direction"}


def test_a_corpus_inside_the_sites_folder_moves_with_it_and_another_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    for file in ("site/text.tsv", "text.de", "text.fr"):
        (tmp_path / file).write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    inside, _ = init_site(Path("site"), "clinic", "de-fr", {"tsv": "site/text.tsv"}, ADDRESS, None)
    outside, _ = init_site(Path("other"), "clinic", "de-fr", {"moses": "text"}, ADDRESS, None)
    assert tomllib.loads(inside.path.read_text())["site"][0]["tsv"] == "text.tsv"
    assert inside.sites[0].corpus == TsvFile(tmp_path / "site" / "text.tsv")
    Path("memory.tmx").touch()
    memory, _ = init_site(Path("memory"), "office", "de-fr", {"tmx": "memory.tmx"}, ADDRESS, None)
    assert memory.sites[0].corpus == TmxFile(tmp_path / "memory.tmx", Direction("de", "fr"))
    assert outside.sites[0].corpus == LineFiles(tmp_path / "text.de", tmp_path / "text.fr")


def test_a_site_with_text_in_one_language_says_so_to_the_operator_and_keeps_its_hook(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "1.txt").write_text("Nota.")
    corpus = {"notes": str(tmp_path / "notes"), "deidentify-with": "scrubbing:scrub"}
    site, join_file = init_site(tmp_path / "site", "clinic", "es", corpus, ADDRESS, None)
    assert str(site.sites[0].direction) == "es"
    assert site.sites[0].corpus == Notes(tmp_path / "notes")
    assert site.sites[0].deidentify_with == "scrubbing:scrub"
    assert tomllib.loads(join_file.read_text())["site"] == [{"name": "clinic", "language": "es"}]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "a/b"}, "name = 'a/b'"),
        ({"direction": "de-xx"}, "language = 'xx' is not known"),
        ({"direction": "spa"}, "language = 'spa' is not known"),
        ({"corpus": {}}, "clinic has no corpus"),
        ({"corpus": {"tsv": "nowhere.tsv"}}, "site clinic: nowhere.tsv: there is no such file; check the path"),
        ({"corpus": {"tsv": "a", "moses": "b"}}, "wanted one"),
        ({"corpus": {"phrasebook": "hospitl"}}, "did you mean 'hospital'"),
        ({"address": "fl.example.org"}, "wanted host:port"),
        ({"address": "fl..example.org:9092"}, "wanted host:port"),
        ({"address": f"{'f' * 64}.org:9092"}, "wanted host:port"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(tmp_path: Path, authority: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(FedlinguaError) as caught:
        made(tmp_path, authority, **changes)
    assert told in str(caught.value)
    assert "--data" not in str(caught.value)  # which `site` does not have
    assert not [file for file in (tmp_path / "site").rglob("*") if file.is_file()]


def test_an_authority_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ask the server's operator for its ca\.crt"):
        made(tmp_path, tmp_path / "none.crt")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("of", ["notes.txt", "ca.key"])
def test_what_holds_no_certificate_is_refused(tmp_path: Path, authority: Path, of: str) -> None:
    file = authority.parent / "certificates" / of
    if not file.exists():
        file.write_text("a certificate")
    with pytest.raises(ConfigError, match=rf"{of}: holds no certificate \(PEM\); give the server's ca\.crt"):
        made(tmp_path, file)
    assert not (tmp_path / "site").exists()


def test_a_folder_that_is_a_sites_already_is_left_alone(tmp_path: Path, authority: Path) -> None:
    site, _ = made(tmp_path, authority)
    before = {file: file.read_bytes() for file in site.path.parent.rglob("*") if file.is_file()}
    with pytest.raises(ConfigError, match=r"site\.toml already exists"):
        made(tmp_path, authority, name="court")
    assert {file: file.read_bytes() for file in site.path.parent.rglob("*") if file.is_file()} == before


def test_the_authority_may_lie_in_the_sites_folder_already(tmp_path: Path, authority: Path) -> None:
    (tmp_path / "site").mkdir()
    content = authority.read_bytes()
    site, _ = made(tmp_path, authority.rename(tmp_path / "site" / "ca.crt"))
    assert site.authority.read_bytes() == content


def test_a_folder_that_holds_a_key_is_refused_before_anything_is_written(tmp_path: Path, authority: Path) -> None:
    """As when only site.toml was removed: another institution may know the site by that key."""
    site, _ = made(tmp_path, authority)
    site.path.unlink()
    make_certificates(tmp_path / "others", ["fl.example.org"])
    authority.write_bytes((tmp_path / "others" / "ca.crt").read_bytes())
    before = {file: file.read_bytes() for file in site.path.parent.rglob("*") if file.is_file()}
    with pytest.raises(ConfigError, match=r"site.key already exists and may be in use; give another folder, or move it away"):
        made(tmp_path, authority)
    assert {file: file.read_bytes() for file in site.path.parent.rglob("*") if file.is_file()} == before
