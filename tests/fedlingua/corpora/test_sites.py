"""Federation files: what they give every site, and what each mistake in one is answered with."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.read import LineFiles, TsvFile
from fedlingua.corpora.records import Dataset, JsonPairs
from fedlingua.corpora.registers import Register
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, SplitRules
from fedlingua.corpora.tmx import TmxFile
from fedlingua.desk.check_settings import check_corpora
from fedlingua_demo import phrasebook
from tests.federations import REGISTER, SITE, federation


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        federation(folder, text)
    return str(caught.value)


def test_a_file_of_sites_alone_takes_every_default(tmp_path: Path) -> None:
    read = federation(tmp_path, SITE)
    assert read.name == "federation"
    assert read.site_names == ["court"]
    assert read.sites[0].direction == Direction("de", "en")
    assert (read.rules.split, read.rules.limits, read.rules.cleaning) == (SplitRules(), Sizes(), CleaningRules())
    assert (read.families, read.base) == ({}, None)


def test_every_table_of_the_file_is_read(tmp_path: Path) -> None:
    tables = """
    name = "two"
    base = "../backbones/half.toml"
    [split]
    mode = "components"
    key = "k"
    train = 0.7
    dev = 0.1
    test = 0.2
    max-train = 30
    max-dev = 10
    [cleaning]
    min-words = 1
    max-ratio = 4
    drop-duplicates = false
    min-script-share = 0.25
    normalize = "NFC"
    strict = true
    [families]
    North = ["de", "en"]
    """
    read = federation(tmp_path, tables + SITE)
    assert read.name == "two"
    assert read.base == tmp_path.parent / "backbones/half.toml"
    assert read.rules.split == SplitRules("components", "k", 0.7, 0.1, 0.2)
    assert read.rules.limits == Sizes(train=30, dev=10, test=0)
    assert read.rules.cleaning == CleaningRules(
        min_words=1, max_ratio=4.0, drop_duplicates=False, min_script_share=0.25, normalize="NFC", strict=True
    )
    assert type(read.rules.cleaning.max_ratio) is float
    assert read.families == {"de": "North", "en": "North"}


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ('tsv = "t/de-fr.tsv.gz"', TsvFile(Path("D/t/de-fr.tsv.gz"), 0, 1)),
        ('tsv = "t/fr-de.tsv.gz"\ncolumns = [1, 0]', TsvFile(Path("D/t/fr-de.tsv.gz"), 1, 0)),
        ('moses = "t/corpus"', LineFiles(Path("D/t/corpus.de"), Path("D/t/corpus.fr"))),
        ('moses = "t/corpus.gz"', LineFiles(Path("D/t/corpus.de.gz"), Path("D/t/corpus.fr.gz"))),
        ('nway = "f/dev.{}.txt.gz"', LineFiles(Path("D/f/dev.de.txt.gz"), Path("D/f/dev.fr.txt.gz"))),
        ('tmx = "memory.tmx.gz"', TmxFile(Path("D/memory.tmx.gz"), Direction("de", "fr"))),
        ('jsonl = "t.jsonl"\nfields = ["a", "b"]', JsonPairs(Path("D/t.jsonl"), ("a", "b"))),
        ('dataset = "books"\nsplit = "test"', Dataset("books", Path("D/books"), ("de", "fr"), split="test")),
        ('phrasebook = "court"', Register("court", None, 1, Direction("de", "fr"))),
        ('phrasebook = "farm"\nsentences = 20\nseed = 3', Register("farm", 20, 3, Direction("de", "fr"))),
    ],
)
def test_a_site_finds_its_corpus_under_the_data_folder(tmp_path: Path, corpus: str, expected: object) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(f'[[site]]\nname = "a"\ndirection = "de-fr"\n{corpus}\n')
    assert read_federation(path, Path("D")).sites[0].corpus == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('nam = "x"\n' + SITE, "federation.toml: nam = 'x': there is no such key; did you mean 'name'?"),
        (SITE + "column = [0, 1]\n", "site court: column = [0, 1]: there is no such key; did you mean 'columns'?"),
        ("[split]\nkeys = 'k'\n" + SITE, "[split]: keys = 'k': there is no such key; did you mean 'key'?"),
        ("[cleaning]\nmin-word = 1\n" + SITE, "[cleaning]: min-word = 1: there is no such key; did you mean 'min-words'?"),
        ("[cleaning]\nmin_words = 1\n" + SITE, "[cleaning]: min_words = 1: there is no such key; did you mean 'min-words'?"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_an_unknown_language_is_answered_with_the_nearest(tmp_path: Path) -> None:
    message = refusal(tmp_path, SITE.replace("de-en", "de-eng", 1))
    assert "site court: direction = 'de-eng': language = 'eng' is not known; did you mean 'en'?" in message


def test_a_direction_with_the_same_language_twice_is_refused(tmp_path: Path) -> None:
    assert "site court: direction = 'de-de' has the same language" in refusal(tmp_path, SITE.replace("de-en", "de-de", 1))


def test_a_site_without_a_direction_is_refused(tmp_path: Path) -> None:
    assert "site court: direction = '' is not a direction" in refusal(tmp_path, '[[site]]\nname = "court"\ntsv = "a.tsv"\n')


def test_an_unknown_register_is_answered_with_the_nearest_and_all(tmp_path: Path) -> None:
    message = refusal(tmp_path, REGISTER.replace('phrasebook = "court"', 'phrasebook = "cort"'))
    assert "site court: phrasebook = 'cort' is not known; did you mean 'court'?" in message
    assert all(register in message for register in phrasebook.REGISTERS)


@pytest.mark.parametrize("direction", ["de-fi", "fi-de"])
def test_a_language_that_the_phrasebook_lacks_is_refused(tmp_path: Path, direction: str) -> None:
    assert "site court: the phrasebook has no language 'fi'" in refusal(tmp_path, REGISTER.replace("de-fr", direction))


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, SITE + SITE.replace("court", "bank") + SITE.replace("de-en", "fr-en"))
    assert "2 sites have the name 'court'" in message


@pytest.mark.parametrize("shares", [(0.6, 0.2, 0.1), (0.6, 0.3, 0.2), (float("nan"), 0.5, 0.5)])
def test_shares_that_do_not_add_up_to_one_are_refused(tmp_path: Path, shares: tuple[float, ...]) -> None:
    table = "[split]\n" + "".join(f"{split} = {share}\n" for split, share in zip(SPLITS, shares, strict=True))
    told = ", ".join(f"{share:g}" for share in shares)
    assert f"[split]: train, dev and test = {told}; wanted three shares that add up to 1" in refusal(tmp_path, table + SITE)


def test_a_share_below_zero_is_refused(tmp_path: Path) -> None:
    assert "train, dev and test = 1.2, -0.4, 0.2; wanted three shares that add up to 1, none below 0" in refusal(
        tmp_path, "[split]\ntrain = 1.2\ndev = -0.4\ntest = 0.2\n" + SITE
    )


@pytest.mark.parametrize("name", ["", "a/b", "../a", "-a", ".a", "a b", "gericht-köln"])
def test_a_name_that_makes_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    assert f"name = {name!r}; wanted letters" in refusal(tmp_path, SITE.replace("court", name))


def test_a_site_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    assert "federation.toml, site 2: name = ''" in refusal(tmp_path, SITE + '[[site]]\ndirection = "de-en"\ntsv = "a.tsv"\n')


def test_a_file_without_sites_is_refused(tmp_path: Path) -> None:
    assert "federation.toml has no [[site]]" in refusal(tmp_path, 'name = "empty"\n')


@pytest.mark.parametrize(
    ("corpus", "told"),
    [
        ('tsv = "a"\nmoses = "b"', "got moses and tsv; wanted one of tsv, csv, moses"),
        ('tsv = "a"\nphrasebook = "court"', "got phrasebook and tsv; wanted one of tsv, csv, moses"),
        ('nway = "dev.txt"', "nway = 'dev.txt' has no place for the language"),
        ('tsv = "a"\ncolumns = [0]', "columns = [0]; wanted two column numbers"),
        ('tsv = "a"\ncolumns = [0, -1]', "columns = [0, -1]; wanted two column numbers"),
        ('tsv = "a"\ncolumns = "01"', "columns = '01'; wanted two column numbers"),
        ('jsonl = "a"\nfield = "text"', "got field, which goes with language"),
        ('jsonl = "a"\nfields = ["text"]', "fields = ['text']; wanted two names"),
        ('tmx = "a"\ncolumns = [0, 1]', "columns = [0, 1] goes with tsv, csv, splits, but this is tmx"),
        (
            'phrasebook = "court"\ncolumns = [1, 0]',
            "columns = [1, 0] goes with tsv, csv, splits, but this is phrasebook; leave it out",
        ),
        ('splits = "a.{}.tsv"\nfields = ["a", "b"]', "fields = ['a', 'b'] goes with jsonl, parquet, dataset, but this is splits"),
        ('phrasebook = "court"\nsubset = "de-fr"', "subset = 'de-fr' goes with dataset, but this is phrasebook"),
        ('tsv = "a"\nsentences = 40', "sentences = 40 goes with phrasebook, but this is tsv"),
        ('splits = "a.{}.tsv"\nseed = 2', "seed = 2 goes with phrasebook, but this is splits"),
        ("columns = [1, 0]", "got columns and no corpus; a deployed site says this in its own file"),
        ("sentences = 40", "got sentences and no corpus"),
        ('phrasebook = "court"\nsentences = "many"', "site court: sentences = 'many'; wanted a whole number"),
        ('phrasebook = "court"\nsentences = 0', "site court: sentences = 0; wanted 1 or above; leave it out"),
        ('phrasebook = "court"\nseed = true', "site court: seed = True; wanted a whole number"),
    ],
)
def test_a_site_with_no_clear_corpus_is_refused(tmp_path: Path, corpus: str, told: str) -> None:
    assert told in refusal(tmp_path, f'[[site]]\nname = "court"\ndirection = "de-fr"\n{corpus}\n')


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("[split]\nmode = 'component'", "mode = 'component' is not known; did you mean 'components'?"),
        ("[split]\nkey = 3", "key = 3 is of type int; wanted str"),
        ("[split]\nmax-train = '10'", "[split]: max-train = '10'; wanted a whole number"),
        ("[split]\nmax-dev = -5", "[split]: max-dev = -5; wanted a whole number"),
        ("[cleaning]\nnormalize = 'nfc'", "normalize = 'nfc' is not known; choose one of off, NFC, NFKC"),
        ("[cleaning]\nmin-words = -1", "[cleaning]: min-words = -1; wanted 0 or above"),
        ("[cleaning]\nmax-words = 1", "[cleaning]: max-words = 1 would keep no sentence; wanted min-words = 2 or more, or 0"),
        ("[cleaning]\nmin-words = 0\nmax-words = -1", "[cleaning]: max-words = -1 would keep no sentence"),
        ("[cleaning]\nmax-ratio = 0.9", "[cleaning]: max-ratio = 0.9; wanted 1"),
        ("[cleaning]\nmax-ratio = -6.0", "[cleaning]: max-ratio = -6; wanted 1"),
        ("[cleaning]\nmax-ratio = nan", "[cleaning]: max-ratio = nan; wanted 1"),
        ("[cleaning]\nmax-ratio = inf", "[cleaning]: max-ratio = inf; wanted 1"),
        ("[cleaning]\nmin-script-share = 1.01", "[cleaning]: min-script-share = 1.01 is not a share; wanted 0 to 1"),
        ("[cleaning]\nmin-script-share = -0.1", "[cleaning]: min-script-share = -0.1 is not a share"),
        ("[cleaning]\nmin-script-share = nan", "[cleaning]: min-script-share = nan is not a share"),
        ("[cleaning]\nmin-words = true", "min-words = True is of type bool; wanted int"),
        ("[cleaning]\nmin-words = 1.0", "min-words = 1.0 is of type float; wanted int"),
        ("[cleaning]\nmax-ratio = true", "max-ratio = True is of type bool; wanted float"),
    ],
)
def test_a_value_of_the_wrong_type_or_choice_is_refused(tmp_path: Path, table: str, told: str) -> None:
    assert told in refusal(tmp_path, f"{table}\n{SITE}")


def test_a_language_in_two_families_or_in_none_is_refused(tmp_path: Path) -> None:
    assert "'de' is in 'A' and in 'B'" in refusal(tmp_path, "[families]\nA = ['de']\nB = ['de']\n" + SITE)
    message = refusal(tmp_path, "[families]\nA = ['deu']\n" + SITE)
    assert "language = 'deu' is not known; did you mean 'de'?" in message


@pytest.mark.parametrize("lacking", ["de", "fr"])
def test_a_missing_corpus_file_is_told_with_its_site_before_anything_starts(tmp_path: Path, lacking: str) -> None:
    read = federation(tmp_path, REGISTER + '[[site]]\nname = "bank"\ndirection = "de-fr"\nmoses = "c"\n')
    (tmp_path / "data").mkdir()
    for code in {"de", "fr"} - {lacking}:
        (tmp_path / "data" / f"c.{code}").write_text("a\n")
    with pytest.raises(CorpusError) as caught:
        check_corpora(read.sites)
    assert f"site bank: {tmp_path / 'data' / f'c.{lacking}'}: there is no such file" in str(caught.value)
    (tmp_path / "data" / f"c.{lacking}").write_text("b\n")
    check_corpora(read.sites)


def test_a_federation_without_text_is_read_but_cannot_be_simulated(tmp_path: Path) -> None:
    """As a deployment's server has it: each site knows its text, the server the sites' keys."""
    read = federation(tmp_path, '[[site]]\nname = "court"\ndirection = "de-fr"\npublic-key = "ecdsa-sha2-nistp384 AAAA"\n')
    assert [(site.name, site.corpus, site.public_key) for site in read.sites] == [("court", None, "ecdsa-sha2-nistp384 AAAA")]
    with pytest.raises(ConfigError, match=r"site court has no corpus here; give it tsv.*--server"):
        check_corpora(read.sites)


def test_text_that_is_not_here_cannot_be_mixed(tmp_path: Path) -> None:
    assert federation(tmp_path, "[split]\nmixed = true\n" + SITE).rules.split.mixed
    without = '[[site]]\nname = "bank"\ndirection = "de-fr"\npublic-key = "k"\n'
    assert "mixed = true mixes all sites' text, which only a simulation can, but bank has no corpus here" in refusal(
        tmp_path, "[split]\nmixed = true\n" + SITE + without
    )
    assert "mixed = true with mode = 'shared-side' would deal a site sentences of its own test text" in refusal(
        tmp_path, "[split]\nmixed = true\nmode = 'shared-side'\n" + SITE
    )
    assert "mixed = 1 is of type int; wanted bool" in refusal(tmp_path, "[split]\nmixed = 1\n" + SITE)


def test_a_site_may_have_both_text_and_a_key_and_most_have_no_key(tmp_path: Path) -> None:
    read = federation(tmp_path, REGISTER + 'public-key = "k"\n' + SITE.replace("court", "bank"))
    assert [site.public_key for site in read.sites] == ["k", ""]
    assert read.sites[0].corpus == Register("court", None, 1, Direction("de", "fr"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('split = "paper"\n', "wanted a table"),
        ('[site]\nname = "a"\ndirection = "de-fr"\n', r"write \[\[site\]\]"),
        (
            '[families]\n"Niger/Congo" = ["sw"]\n[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "x.tsv"\n',
            "wanted a name of letters",
        ),
        (
            'base = "x.toml"\n[split]\nmode = "paper"\n[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "x.tsv"\n',
            "cannot keep its text out",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(tmp_path, text, message):
    file = tmp_path / "odd.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_federation(file, tmp_path)


def test_text_in_one_language_takes_no_pairs(tmp_path: Path) -> None:
    for corpus, key in (('tmx = "a"', "tmx"), ('jsonl = "a"\nfields = ["a", "b"]', "fields"), ('dataset = "a"', "dataset")):
        told = refusal(tmp_path, f'[[site]]\nname = "court"\nlanguage = "de"\n{corpus}\n')
        assert f"got {key}, which goes with direction" in told


def test_a_hubs_dataset_needs_no_file_here_and_a_folder_has_its_own(tmp_path: Path) -> None:
    read = federation(tmp_path, '[[site]]\nname = "court"\ndirection = "de-fr"\ndataset = "books"\n')
    check_corpora(read.sites)
    (tmp_path / "data/books").mkdir(parents=True)
    (tmp_path / "data/books/train.parquet").touch()
    assert read.sites[0].corpus is not None
    assert read.sites[0].corpus.paths() == [tmp_path / "data/books/train.parquet"]
