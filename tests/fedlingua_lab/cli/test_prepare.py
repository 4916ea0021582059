"""`fedlingua corpus prepare`: from twelve zips to what a federation reads."""

import gzip
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.check_settings import check_corpora
from fedlingua.desk.cli.app import app
from fedlingua_lab.cli.prepare import CORPORA
from fedlingua_lab.corpora.prepare import PAPER_CORPORA
from fedlingua_lab.corpora.uncorpus import DIRECTIONS, prepare_uncorpus
from tests.downloads import mtnt_rows, write_mtnt, write_un

EUROPARL = PAPER_CORPORA["europarl"]


def write_europarl(folder: Path, lines: int) -> None:
    """Every pair in a zip; line i is the same sentence in every language, the first line too short."""
    folder.mkdir()
    for direction in EUROPARL.sizes:
        pair = "-".join(sorted(direction.sides))
        with zipfile.ZipFile(folder / f"{pair}.txt.zip", "w") as archive:
            for code in (direction.source, direction.target):
                text = "\n".join([code, *(f"{code} {number}" for number in range(1, lines))]) + "\n"
                archive.writestr(f"Europarl.{pair}.{code}", text)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["corpus", "prepare", *map(str, arguments)])


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opus") / "europarl"
    write_europarl(folder, 500)
    return folder


def test_every_pair_is_written_with_its_account(tmp_path: Path, downloads: Path) -> None:
    result = command("europarl", "--from", downloads, "--to", tmp_path)
    assert result.exit_code == 0, result.output
    assert "prepared" in result.output
    account = json.loads((tmp_path / "europarl/account.json").read_text())
    assert list(account["directions"]) == [str(direction) for direction in EUROPARL.sizes]
    for direction, told in account["directions"].items():
        assert (told["read"], told["kept"], told["dropped"]) == (500, 499, {"too-short": 1})
        assert told["sizes"] == {"train": 3, "dev": 1, "test": 1}
        assert told["read"] == told["kept"] + sum(told["dropped"].values())
        assert told["kept"] == sum(told["sizes"].values()) + told["not_taken"]
        for split, size in told["sizes"].items():
            source, target = direction.split("-")
            text = gzip.decompress((tmp_path / f"europarl/{direction}.{split}.tsv.gz").read_bytes()).decode()
            rows = [[side.split() for side in line.split("\t")] for line in text.splitlines()]
            assert [(left[0], right[0], left[1] == right[1]) for left, right in rows] == [(source, target, True)] * size
    assert len(list((tmp_path / "europarl").iterdir())) == 12 * 3 + 1
    assert [path.name for path in tmp_path.iterdir()] == ["europarl"]


def test_the_same_downloads_and_key_give_the_same_bytes(tmp_path: Path, downloads: Path) -> None:
    for name in ("one", "two"):
        assert command("europarl", "--from", downloads, "--to", tmp_path / name).exit_code == 0
    assert command("europarl", "--from", downloads, "--to", tmp_path / "other", "--key", "k").exit_code == 0
    one, two, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "europarl").iterdir()} for name in ("one", "two", "other")
    )
    assert one == two
    assert one["de-fr.train.tsv.gz"] != other["de-fr.train.tsv.gz"]


def test_a_federation_reads_what_was_prepared(tmp_path: Path, downloads: Path) -> None:
    command("europarl", "--from", downloads, "--to", tmp_path, "--no-leaks")
    sites = "".join(
        f'[[site]]\nname = "{direction}"\ndirection = "{direction}"\nsplits = "europarl-no-leaks/{direction}.{{}}.tsv.gz"\n'
        for direction in EUROPARL.sizes
    )
    (tmp_path / "f.toml").write_text(f'[split]\nmode = "given"\n[sizes]\ntrain = 2\n{sites}')
    federation = read_federation(tmp_path / "f.toml", tmp_path)
    check_corpora(federation.sites)
    for text in read_sites(federation, frozenset()).values():
        assert [len(text.splits[split]) for split in SPLITS] == [2, 1, 1]


def test_uniform_sizes_and_splits_without_leaks_have_folders_of_their_own(tmp_path: Path, downloads: Path) -> None:
    with pytest.raises(CorpusError, match=r"de-fr, train: (299|300) of 5000"):
        raise command("europarl", "--from", downloads, "--to", tmp_path, "--uniform").exception or AssertionError
    assert not list(tmp_path.iterdir())
    assert command("europarl", "--from", downloads, "--to", tmp_path, "--no-leaks").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["europarl-no-leaks"]


def test_downloads_that_are_missing_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    write_europarl(tmp_path / "from", 500)
    for pair in ("de-fr", "lv-pl"):
        (tmp_path / f"from/{pair}.txt.zip").unlink()
    with pytest.raises(CorpusError, match=r"lacks 2 of 12 pairs(?s:.)*Europarl_de-fr\.txt\.zip(?s:.)*Europarl_lv-pl\.txt\.zip"):
        raise command("europarl", "--from", tmp_path / "from", "--to", tmp_path / "to").exception or AssertionError
    assert not (tmp_path / "to").exists()


def test_an_unknown_corpus_and_a_folder_that_is_there_are_refused(tmp_path: Path, downloads: Path) -> None:
    for name, told in (("europal", "did you mean 'europarl'"), ("europarl", "already exists")):
        (tmp_path / "europarl").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match=told):
            raise command(name, "--from", downloads, "--to", tmp_path).exception or AssertionError


def test_mtnt_is_written_as_its_federations_read_it(tmp_path: Path) -> None:
    write_mtnt(tmp_path / "from/MTNT", mtnt_rows())
    for name in ("one", "two"):
        result = command("mtnt", "--from", tmp_path / "from", "--to", tmp_path / name)
        assert result.exit_code == 0, result.output
    assert "5605" in result.output
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name / "mtnt").iterdir()} for name in ("one", "two"))
    assert one == two
    federation = read_federation(Path("experiments/federations/mtnt_noniid.toml").resolve(), tmp_path / "one")
    check_corpora(federation.sites)
    sizes = {name: [len(text.splits[split]) for split in SPLITS] for name, text in read_sites(federation, frozenset()).items()}
    assert sizes == {"en-fr": [6, 2, 2], "en-ja": [6, 1, 1]}


def test_the_un_corpus_is_written_as_its_federations_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_un(tmp_path / "from")
    with pytest.raises(CorpusError, match=r"train: \d+ of 80000"):
        raise command("uncorpus", "--from", tmp_path / "from", "--to", tmp_path / "to").exception or AssertionError
    assert not (tmp_path / "to").exists()
    small = Sizes(8, 3, 3)
    monkeypatch.setitem(CORPORA, "uncorpus", lambda folder, key, no_leaks, note: prepare_uncorpus(folder, key, note, small))
    result = command("uncorpus", "--from", tmp_path / "from", "--to", tmp_path / "to")
    assert result.exit_code == 0, result.output
    federation = read_federation(Path("experiments/federations/uncorpus_noniid.toml").resolve(), tmp_path / "to")
    check_corpora(federation.sites)
    assert [site.direction for site in federation.sites] == list(DIRECTIONS)


def test_options_that_a_corpus_has_not_are_refused(tmp_path: Path) -> None:
    for arguments, told in (
        (("mtnt", "--uniform"), "--uniform: mtnt has one size for all pairs; the option is for ted2020 and europarl"),
        (("uncorpus", "--no-leaks"), "--no-leaks: uncorpus never has a sentence in two splits"),
    ):
        with pytest.raises(ConfigError, match=told):
            raise command(*arguments, "--from", tmp_path, "--to", tmp_path / "to").exception or AssertionError
