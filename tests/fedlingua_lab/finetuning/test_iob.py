"""IOB files: what is read, and every way in which a line can be wrong, told with file and line."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua_lab.finetuning.annotated import Tagged, Texts, labels_of, read_annotated, sizes_of

GOOD = "Aspirin\tB-Drug\nfor\tO\nmy\tO\nhead\tB-Body\nache\tI-Body\n\nNothing\tO\n"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "ner_biomed_en"
REAL = {
    "BC5CDR-IOB": {
        "train": (4560, 118170, {"Chemical": 5203, "Disease": 4182}),
        "dev": (4581, 117453, {"Chemical": 5347, "Disease": 4246}),
        "test": (4797, 124750, {"Chemical": 5385, "Disease": 4424}),
    },
    "NCBI-disease-IOB": {
        "train": (5424, 135701, {"Disease": 5134}),
        "dev": (923, 23969, {"Disease": 787}),
        "test": (940, 24497, {"Disease": 960}),
    },
}


def folder(tmp_path: Path, train: str = GOOD, devel: str = GOOD, test: str = GOOD) -> Path:
    for name, text in (("train", train), ("devel", devel), ("test", test)):
        (tmp_path / f"{name}.tsv").write_text(text)
    return tmp_path


def read_iob(data: Path) -> Texts:
    return read_annotated(data, "iob")


def test_a_blank_line_ends_a_sentence_and_the_last_one_needs_none(tmp_path: Path) -> None:
    corpus = read_iob(folder(tmp_path))
    first = Tagged(["Aspirin", "for", "my", "head", "ache"], ["B-Drug", "O", "O", "B-Body", "I-Body"])
    assert corpus["train"] == [first, Tagged(["Nothing"], ["O"])]
    assert labels_of(corpus) == ["O", "B-Body", "I-Body", "B-Drug", "I-Drug"]
    assert sizes_of(corpus)["dev"] == {"sentences": 2, "tokens": 6, "entities": {"Body": 1, "Drug": 1}}


def test_first_column_is_the_token_and_last_the_tag_whatever_stands_between(tmp_path: Path) -> None:
    corpus = read_iob(folder(tmp_path, devel="Aspirin NN B-NP B-Drug\nhelps VB O O\n", test="a b\tX\tB-Drug\r\n"))
    assert corpus["dev"] == [Tagged(["Aspirin", "helps"], ["B-Drug", "O"])]
    assert corpus["test"] == [Tagged(["a b"], ["B-Drug"])]


@pytest.mark.parametrize("blank", ["", "\n"])
def test_the_mark_of_a_document_ends_a_sentence_and_is_no_token(tmp_path: Path, blank: str) -> None:
    text = f"-DOCSTART- -X- -X- O\n{blank}Aspirin NN B-NP B-Drug\n-DOCSTART-\tO\n{blank}helps VB O O\n"
    corpus = read_iob(folder(tmp_path, devel=text))
    assert corpus["dev"] == [Tagged(["Aspirin"], ["B-Drug"]), Tagged(["helps"], ["O"])]


def test_plain_b_and_i_are_the_one_type_of_a_corpus(tmp_path: Path) -> None:
    text = "A\tB\nb\tI\nc\tO\n"
    corpus = read_iob(folder(tmp_path, text, text, text))
    assert corpus["test"][0].tags == ["B-entity", "I-entity", "O"]
    assert labels_of(corpus) == ["O", "B-entity", "I-entity"]


def test_splits_may_be_gzipped_and_dev_may_go_by_other_names(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert len(read_iob(tmp_path)["dev"]) == 2


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("Aspirin\tO\nache\tI-Body\n", 2, "got an I where no entity of its type is open"),
        ("Aspirin\tB-Drug\n\nache\tI-Drug\n", 3, "got an I where no entity of its type is open"),
        ("Aspirin\tB-Drug\nache\tI-Body\n", 2, "got an I where no entity of its type is open"),
        ("Aspirin\tS-Drug\n", 1, "convert tags of another scheme (BIOES) to IOB2"),
        ("Aspirin\tB-Drug\nhelps\n", 2, "got 1 column(s)"),
        ("Aspirin\tB-Drug\n\tO\n", 2, "got 2 column(s), which are no token and IOB tag"),
        ("Zoster\tB-Virus\n\n", 2, "has a type or label that train lacks"),
    ],
)
def test_a_wrong_line_is_told_with_file_and_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    with pytest.raises(CorpusError) as error:
        read_iob(folder(tmp_path, test=text))
    assert f"{tmp_path / 'test.tsv'}, line {line}: " in str(error.value)
    assert told in str(error.value)


def test_what_is_no_tag_is_not_quoted_for_it_may_be_text(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"train.tsv, line 1: got 2 column\(s\), which are no token and IOB tag") as error:
        read_iob(folder(tmp_path, train="B-Name\tJohannes\n"))
    assert "Johannes" not in str(error.value)


@pytest.mark.parametrize("text", ["O\t{}\n", "B-Drug\tB\nI-Drug\t{}\n", "B-Drug\tB-Drug\nI-Drug\t{}\n"])
@pytest.mark.parametrize(
    ("token", "split"),
    [*((token, split) for token in ("I-131", "S-100", "L-dopa") for split in ("train", "test")), ("B-12", "test")],
)
def test_a_token_in_the_tags_column_is_not_quoted_though_it_looks_like_a_tag(
    tmp_path: Path, token: str, split: str, text: str
) -> None:
    with pytest.raises(CorpusError) as error:
        read_iob(folder(tmp_path, **{split: text.format(token)}))
    assert token[2:] not in str(error.value).replace(str(tmp_path), "")


def test_a_missing_split_is_told_with_the_names_it_may_have(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "devel.tsv").unlink()
    with pytest.raises(CorpusError, match=r"got none for the split dev; wanted exactly one of devel.tsv, devel.tsv.gz, dev.tsv"):
        read_iob(tmp_path)


def test_a_split_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "valid.tsv").write_text(GOOD)
    with pytest.raises(CorpusError, match=r"got devel.tsv, valid.tsv for the split dev"):
        read_iob(tmp_path)


@pytest.mark.parametrize(("train", "told"), [("a\tO\n", "has nothing to learn"), ("\n\n", "holds no text"), ("", "is empty")])
def test_training_text_without_anything_to_learn_is_refused(tmp_path: Path, train: str, told: str) -> None:
    with pytest.raises(CorpusError, match=told):
        read_iob(folder(tmp_path, train=train))


def test_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no such folder"):
        read_iob(tmp_path / "nowhere")


@pytest.mark.parametrize("name", REAL)
def test_real_corpora_have_their_sentences_tokens_and_entities(name: str) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip(f"no {name} in shared/data beside this checkout")
    sizes = sizes_of(read_iob(SHARED / name))
    assert {split: (size["sentences"], size["tokens"], size["entities"]) for split, size in sizes.items()} == REAL[name]
