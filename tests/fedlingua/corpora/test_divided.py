"""Text that comes divided: every file is its split, nothing is moved."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.formats import SplitFiles
from fedlingua.corpora.read import Pair, TsvFile
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites, read_text
from fedlingua.desk.check_settings import check_corpora

GIVEN = '[split]\nmode = "given"\n'
SITE = '[[site]]\nname = "court"\ndirection = "de-en"\nsplits = "t/de-en.{}.tsv"\n'


def federation(folder: Path, text: str) -> Federation:
    (folder / "federation.toml").write_text(text)
    return read_federation(folder / "federation.toml", folder)


def write_splits(folder: Path, **lines: list[str]) -> None:
    (folder / "t").mkdir(exist_ok=True)
    for split, content in lines.items():
        (folder / "t" / f"de-en.{split}.tsv").write_text("".join(f"{line}\n" for line in content))


@pytest.fixture
def court(tmp_path: Path) -> Federation:
    train = [
        "ein Satz\tone sentence",
        "zwei Sätze\ttwo sentences",
        "ja\tyes",
        "ein Satz\tone sentence",
        "drei Dinge\tthree things",
    ]
    write_splits(tmp_path, train=train, dev=["ein Satz\tone sentence"], test=["vier Tage\tfour days", "noch einer\tone more"])
    return federation(tmp_path, GIVEN + SITE)


def test_every_file_is_its_split_cleaned_by_itself(court: Federation) -> None:
    text = read_sites(court, frozenset())["court"]
    assert text.splits == {
        "base": [],
        "train": [Pair("ein Satz", "one sentence"), Pair("zwei Sätze", "two sentences"), Pair("drei Dinge", "three things")],
        "dev": [Pair("ein Satz", "one sentence")],  # also in train: the files stay as they came
        "test": [Pair("vier Tage", "four days"), Pair("noch einer", "one more")],
    }
    assert (text.account.read, text.account.kept, text.account.dropped) == (8, 6, {"too-short": 1, "duplicate": 1})


def test_the_place_of_the_split_stands_in_braces(tmp_path: Path) -> None:
    read = federation(tmp_path, GIVEN + SITE + "columns = [1, 0]\n")
    assert read.sites[0].corpus == SplitFiles({split: TsvFile(tmp_path / f"t/de-en.{split}.tsv", 1, 0) for split in SPLITS})


def test_sizes_take_the_front_of_each_file(tmp_path: Path, court: Federation) -> None:
    cut = read_sites(federation(tmp_path, GIVEN + "[sizes]\ntrain = 2\ntest = 1\n" + SITE), frozenset())["court"].splits
    whole = read_sites(court, frozenset())["court"].splits
    assert [cut[split] for split in SPLITS] == [whole["train"][:2], whole["dev"], whole["test"][:1]]
    with pytest.raises(CorpusError, match=r"train 3 of 4"):
        read_sites(federation(tmp_path, GIVEN + "[sizes]\ntrain = 4\n" + SITE))


def test_a_deployed_site_reads_its_own_files_by_the_servers_rules(court: Federation) -> None:
    rules = TextRules.from_flat(court.rules.flat())
    assert read_text(court.sites, rules) == read_sites(court, frozenset())


def test_a_split_that_is_not_there_is_named_before_anything_starts(tmp_path: Path, court: Federation) -> None:
    check_corpora(court.sites)
    (tmp_path / "t/de-en.dev.tsv").unlink()
    with pytest.raises(CorpusError, match=r"site court: .*de-en\.dev\.tsv: there is no such file"):
        check_corpora(court.sites)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SITE, r"site court: got splits and \[split\] mode = 'components'; mode = 'given' and `splits` go together"),
        (
            GIVEN + SITE + '[[site]]\nname = "a"\ndirection = "de-en"\ntsv = "x"\n',
            r"site a: got a corpus that is not divided and \[split\] mode = 'given'",
        ),
        (GIVEN + SITE.replace("{}", "x"), r"splits = 't/de-en.x.tsv' has no place for the split; write {}"),
        (GIVEN + SITE + 'tsv = "x"\n', "site court: got splits and tsv; wanted one of tsv, csv, moses"),
        ('base = "b.toml"\n' + GIVEN + SITE, "'given' cannot keep its text out"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        federation(tmp_path, text)


def test_a_deployed_site_whose_text_is_not_divided_is_refused(tmp_path: Path, court: Federation) -> None:
    undivided = federation(tmp_path, SITE.replace("splits", "tsv").replace(".{}", ".train"))
    with pytest.raises(ConfigError, match="mode = 'given' and `splits` go together"):
        read_text(undivided.sites, court.rules)
