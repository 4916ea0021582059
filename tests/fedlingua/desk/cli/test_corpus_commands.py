"""`fedlingua corpus check | convert | split`: one corpus, as its owner looks at it before it is used."""

import gzip
import json
from itertools import chain
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedlingua.common.errors import ConfigError, CorpusError, FedlinguaError
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.records import Dataset
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.corpus_input import CleaningOptions, CorpusInput
from fedlingua_demo import phrasebook

GOOD = [(f"der Hund Nummer {number} schläft", f"dog number {number} sleeps") for number in range(40)]
BAD = [("", "nothing at all"), GOOD[0], ("Ja", "Yes"), ("London [b] und\x1b Rom", "London [b] und\x1b Rom")]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "de-en.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in [*GOOD, *BAD]), "utf-8")
    return path


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["corpus", *map(str, arguments)])


def refusal(kind: type[FedlinguaError], *arguments: object) -> str:
    with pytest.raises(kind) as caught:
        raise command(*arguments).exception or AssertionError
    return str(caught.value)


def test_check_shows_the_account_lengths_and_samples(corpus: Path) -> None:
    shown = command("check", corpus, "--direction", "de-en")
    assert shown.exit_code == 0, shown.output
    assert "read 44, kept 41, dropped 3" in shown.output
    for told in ("empty", "duplicate", "too-short", "Ja", "words", "repeated: pairs 1, sources 1, targets 1"):
        assert told in shown.output
    more = command("check", corpus, "--direction", "de-en", "--set", "drop-identical=true", "--samples", 1)
    assert "London [b] und· Rom" in " ".join(more.output.split())
    assert "\x1b]" not in more.output


def test_every_command_of_a_corpus_warns_of_a_header_and_of_damage(tmp_path: Path) -> None:
    rows = [("Deutsch", "English"), *GOOD, ("GrÃ¼ÃŸe aus MÃ¼nchen", "greetings from Munich")]
    (file := tmp_path / "x.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), "utf-8")
    for name, *more in (("check",), ("convert", "--to", tmp_path / "y.tsv"), ("split", "--to", tmp_path / "z")):
        told = command(name, file, "--direction", "de-en", *more, "--format", "json")
        assert told.exit_code == 0, told.output
        twice, header = json.loads(told.stdout)["warnings"]
        assert "1 of 42 lines (2.4%) have UTF-8 that was read as Windows-1252" in twice
        assert "the first row looks like a header" in header


def test_check_tells_whether_a_backbone_knows_the_languages(corpus: Path) -> None:
    told = json.loads(command("check", corpus, "--direction", "de-en", "--backbone", "demo", "--format", "json").stdout)
    assert [text.partition(";")[0].partition(",")[0] for text in told["doubts"]] == [
        "de: backbone 'demo' knows the phrasebook's words alone",
        "direction de-en: backbone 'demo' was never trained to write English",
    ]
    text = phrasebook.register_corpus("hospital", 30, 5)
    corpus.write_text("".join(f"{german}\t{dutch}\n" for german, dutch in zip(text["de"], text["nl"], strict=True)))
    assert "backbone demo knows both" in command("check", corpus, "--direction", "de-nl", "--backbone", "demo").output


def test_an_option_that_no_corpus_has_is_refused_and_none_replaces_the_corpus(corpus: Path) -> None:
    for option in ("colums=[1,0]", f"tsv={corpus}"):
        assert "--option: " in refusal(ConfigError, "check", corpus, "--direction", "de-en", "--option", option)


def test_check_as_json_is_one_object(corpus: Path) -> None:
    told = json.loads(
        command("check", corpus, "--direction", "de-en", "--format", "json", "--set", "min-words=0", "--samples", 0).stdout
    )
    assert (told["read"], told["kept"], told["dropped"]) == (44, 42, {"empty": 1, "duplicate": 1})
    assert told["samples"] == {"empty": [], "duplicate": []}
    assert told["lengths"]["en"]["median"] == 4


def test_strict_check_fails_after_its_figures(corpus: Path) -> None:
    shown = command("check", corpus, "--direction", "de-en", "--strict")
    assert "kept 41" in shown.output
    assert "3 of 44 pairs would be dropped (empty 1, duplicate 1, too-short 1)" in str(shown.exception)
    corpus.write_text("eins zwei\tone two\n")
    assert command("check", corpus, "--direction", "de-en", "--strict").exit_code == 0


@pytest.mark.parametrize("name", ["x.tmx.gz", "x.jsonl", "x.parquet", "x.tsv.gz"])
def test_convert_writes_what_check_reads(corpus: Path, tmp_path: Path, name: str) -> None:
    converted = command(
        "convert", corpus, "--direction", "de-en", "--to", tmp_path / name, "--set", "drop-control-characters=true"
    )
    assert converted.exit_code == 0, converted.output
    assert "kept 40, dropped empty 1, duplicate 1, too-short 1, control-characters 1" in converted.output
    told = json.loads(command("check", tmp_path / name, "--direction", "de-en", "--format", "json").stdout)
    assert (told["read"], told["kept"]) == (40, 40)


def test_convert_alone_drops_nothing(corpus: Path, tmp_path: Path) -> None:
    assert "44 pairs" in command("convert", corpus, "--direction", "de-en", "--to", tmp_path / "x", "--as", "moses").output
    assert (tmp_path / "x.de").read_bytes().count(b"\n") == (tmp_path / "x.en").read_bytes().count(b"\n") == 44
    moses = json.loads(command("check", tmp_path / "x", "--direction", "de-en", "--format", "json").stdout)
    assert moses["read"] == 44


def test_what_fails_leaves_nothing_half_written(corpus: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    told = refusal(CorpusError, "convert", corpus, "--direction", "de-en", "--to", to / "x.jsonl", "--strict")
    assert f"{corpus}: pair 41 would be dropped (empty), and cleaning is strict" in told
    assert "pair 44 has the character U+001B" in refusal(
        CorpusError, "convert", corpus, "--direction", "de-en", "--to", to / "x.tmx"
    )
    assert "none of 44 pairs was kept" in refusal(
        CorpusError, "convert", corpus, "--direction", "de-en", "--to", to / "x.tsv", "--set", "min-words=90"
    )
    corpus.write_bytes(corpus.read_bytes() + b"\xfc\tx\n")
    assert "line 45: byte 1 of the line is not UTF-8" in refusal(
        CorpusError, "convert", corpus, "--direction", "de-en", "--to", to / "x.parquet"
    )
    assert "line 45" in refusal(CorpusError, "split", corpus, "--direction", "de-en", "--to", tmp_path / "split")
    assert list(to.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de-en.tsv", "to"]


def test_split_writes_what_a_federation_reads(corpus: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        result = command("split", corpus, "--direction", "de-en", "--to", tmp_path / name, "--shares", "0.5,0.25,0.25")
        assert result.exit_code == 0, result.output
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    told = json.loads(files["account.json"])["directions"]["de-en"]
    assert (told["read"], told["kept"], sum(told["sizes"].values()), told["not_taken"]) == (44, 41, 41, 0)
    lines = [gzip.decompress(files[f"de-en.{split}.tsv.gz"]).decode().split("\n")[:-1] for split in SPLITS]
    assert sum(map(len, lines)) == len(set(chain.from_iterable(lines))) == 41
    federation = '[split]\nmode = "given"\n[[site]]\nname = "a"\ndirection = "de-en"\nsplits = "one/de-en.{}.tsv.gz"\n'
    (tmp_path / "f.toml").write_text(federation)
    text = read_sites(read_federation(tmp_path / "f.toml", tmp_path), frozenset())["a"]
    assert [len(text.splits[split]) for split in SPLITS] == list(map(len, lines))


@pytest.mark.parametrize("shares", ["1", "0.5,0.5", "0.5,0.4,0.3", "1.5,-0.5,0", "nan,0,0", "a,b,c"])
def test_shares_that_are_none_are_refused(corpus: Path, tmp_path: Path, shares: str) -> None:
    told = refusal(ConfigError, "split", corpus, "--direction", "de-en", "--to", tmp_path / "x", "--shares", shares)
    assert "wanted three shares that add up to 1" in told
    assert not (tmp_path / "x").exists()


def test_a_split_that_would_be_empty_or_is_there_already_is_refused(tmp_path: Path) -> None:
    one = tmp_path / "one.tsv"
    one.write_text("ein Hund\ta dog\n")
    told = refusal(CorpusError, "split", one, "--direction", "de-en", "--to", tmp_path / "x")
    assert "sentence is left" in told
    assert not (tmp_path / "x").exists()
    assert "already exists" in refusal(ConfigError, "split", one, "--direction", "de-en", "--to", tmp_path)


def test_rules_come_from_a_file_with_changes_before_it(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('[cleaning]\nmin-words = 1\nnormalize = "NFC"\n')
    asked = CleaningOptions(tmp_path / "f.toml", ["min-words=3", "max-ratio=2", "normalize=NFKC"], True).read()
    assert asked == CleaningRules(min_words=3, max_ratio=2.0, normalize="NFKC", strict=True)
    assert CleaningOptions().read() == CleaningRules()
    for changes, told in (
        (["min-word=3"], "did you mean 'min-words'"),
        (["strict"], "wanted key=value"),
        (["strict=1"], "wanted bool"),
    ):
        with pytest.raises(ConfigError, match=told):
            CleaningOptions(None, changes).read()


@pytest.mark.parametrize(
    ("rules", "changes", "told"),
    [
        ("min-word = 3", ["min-words=1"], r"f.toml \[cleaning\]: min-word = 3: there is no such key"),
        ("max-ratio = 0.5", [], r"f.toml \[cleaning\]: max-ratio = 0.5; wanted 1"),
        ("max-words = 10", ["min-words=11"], "^--set: max-words = 10 would keep no sentence; wanted min-words = 11 or more"),
        ("min-words = 1", ["min-script-share=2"], "^--set: min-script-share = 2 is not a share"),
    ],
)
def test_a_mistake_in_the_file_is_the_files_and_one_in_the_changes_theirs(
    tmp_path: Path, rules: str, changes: list[str], told: str
) -> None:
    (tmp_path / "f.toml").write_text(f"[cleaning]\n{rules}\n")
    with pytest.raises(ConfigError, match=told):
        CleaningOptions(tmp_path / "f.toml", changes).read()


def test_a_corpus_is_told_by_its_name_or_its_kind(tmp_path: Path, corpus: Path) -> None:
    for name, kind in (
        ("a.tmx.gz", "TmxFile"),
        ("a.jsonl", "JsonPairs"),
        ("a.po", "PoFile"),
        ("a.mo", "PoFile"),
        ("en-de.txt.zip", "OpusZip"),
        ("d.{}.txt", "LineFiles"),
    ):
        assert type(CorpusInput(name, "de-en").files).__name__ == kind
    books = CorpusInput("opus_books", "de-en", "dataset", ["subset=de-en", 'fields=["a", "b"]']).files
    assert books == Dataset("opus_books", Path("opus_books"), ("a", "b"), "de-en")
    assert CorpusInput(str(tmp_path), "de-en").files == Dataset(str(tmp_path), tmp_path, ("de", "en"))
    for name, kind, told in (("a.xls", None, "names no kind"), ("a", "xls", "--kind 'xls' is not known")):
        with pytest.raises(ConfigError, match=told):
            CorpusInput(name, "de-en", kind).read()
    with pytest.raises(ConfigError, match="goes with dataset, but this is tsv"):
        CorpusInput(str(corpus), "de-en", None, ["split=train"]).read()
