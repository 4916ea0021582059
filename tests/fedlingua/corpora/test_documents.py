"""Text in one language: what a federation file gives each site of it, and what each mistake is answered with."""

import gzip
import json
import os
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.deidentify import CommandHook
from fedlingua.corpora.read import Corpus, LineDocuments, Notes, Pair
from fedlingua.corpora.records import JsonDocuments
from fedlingua.corpora.registers import Register
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.check_settings import check_corpora
from fedlingua_demo import phrasebook
from tests.federations import SITE, federation

DATA = Path(__file__).parents[3] / "../shared/data"


def clinic(corpus: str, name: str = "clinic", language: str = "es") -> str:
    return f'[[site]]\nname = "{name}"\nlanguage = "{language}"\n{corpus}\n'


def write(folder: Path, **files: str) -> Path:
    """Text files by name, "__" for a folder's slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return folder


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ('lines = "t/notes.txt.gz"', LineDocuments(Path("D/t/notes.txt.gz"))),
        ('lines = "t/notes.txt"\nshare = "2/7"', LineDocuments(Path("D/t/notes.txt"), 2, 7)),
        ('lines = "t/{}.txt"', LineDocuments(Path("D/t/{}.txt"))),
        ('nway = "t/dev.{}.txt.gz"\nshare = "7/7"', LineDocuments(Path("D/t/dev.es.txt.gz"), 7, 7)),
        ('jsonl = "docs.jsonl.gz"', JsonDocuments(Path("D/docs.jsonl.gz"), "text")),
        ('jsonl = "docs.jsonl"\nfield = "note"', JsonDocuments(Path("D/docs.jsonl"), "note")),
        ('notes = "folder"', Notes(Path("D/folder"))),
        ('phrasebook = "hospital"\nsentences = 20', Register("hospital", 20, 1, Direction("es", "es"))),
        ("", None),
    ],
)
def test_a_site_with_a_language_finds_its_documents_under_the_data_folder(tmp_path: Path, corpus: str, expected: object) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(clinic(corpus))
    federation = read_federation(path, Path("D"))
    site = federation.sites[0]
    assert (site.corpus, site.direction, site.public, site.deidentify_with) == (expected, Direction("es", "es"), False, None)
    assert federation.rules.directions == (Direction("es", "es"),)
    assert federation.rules.text.deidentify == "off"


def test_a_site_says_what_is_public_and_what_its_hook_is(tmp_path: Path) -> None:
    function = 'lines = "a.txt"\npublic = true\ndeidentify-with = "scrubbing.spanish:scrub"'
    command = 'lines = "b.txt"\ndeidentify-with = ["./scrub", "--lang", ""]'
    sites = federation(tmp_path, clinic(function) + clinic(command, "other")).sites
    assert [site.public for site in sites] == [True, False]
    assert sites[0].deidentify_with == "scrubbing.spanish:scrub"
    assert sites[1].deidentify_with == CommandHook(("./scrub", "--lang", ""), tmp_path / "data")


@pytest.mark.parametrize(
    ("corpus", "told"),
    [
        (
            'direction = "es-en"\nlines = "a"',
            "got direction = 'es-en' and language = 'es'; wanted direction for text that is translated",
        ),
        ('lines = "a"\nnotes = "b"', "got lines and notes; wanted one of lines, jsonl, notes, nway or phrasebook"),
        (
            'lines = "a"\nphrasebook = "hospital"',
            "got lines and phrasebook; wanted one of lines, jsonl, notes, nway or phrasebook",
        ),
        ('tsv = "a"', "got tsv, which goes with direction; text in one language is lines, jsonl, notes, nway or phrasebook"),
        ('moses = "a"', "got moses, which goes with direction"),
        ('splits = "a.{}"', "got splits, which goes with direction"),
        ('lines = "a"\ncolumns = [0, 1]', "got columns, which goes with direction"),
        ('nway = "dev.txt"', "nway = 'dev.txt' has no place for the language"),
        ('lines = "a"\nshare = "8/7"', "share = '8/7'; wanted a part of all lines, from '1/7' to '7/7'"),
        ('lines = "a"\nshare = "0/7"', "share = '0/7'; wanted a part"),
        ('lines = "a"\nshare = "x"', "share = 'x'; wanted a part"),
        ('lines = "a"\nshare = 2', "share = 2; wanted a part"),
        ('jsonl = "a"\nshare = "1/7"', "share = '1/7' goes with lines, nway, but this is jsonl"),
        ('lines = "a"\nsentences = 40', "sentences = 40 goes with phrasebook, but this is lines"),
        ('phrasebook = "hospital"\nfield = "text"', "field = 'text' goes with jsonl, but this is phrasebook"),
        ('phrasebook = "hospital"\nshare = "1/7"', "share = '1/7' goes with lines, nway, but this is phrasebook"),
        ('lines = "a"\nfield = "text"', "field = 'text' goes with jsonl, but this is lines"),
        ('lines = "a"\npublic = "yes"', "public = 'yes'; wanted true or false"),
        ('lines = "a"\ndeidentify-with = "scrub"', "deidentify-with = 'scrub'; wanted 'package.module:function', or a command"),
        ('lines = "a"\ndeidentify-with = []', "deidentify-with = []; wanted"),
        ('lines = "a"\ndeidentify-with = ["a", 3]', "deidentify-with = ['a', 3]; wanted"),
        ('deidentify-with = "a:b"', "got deidentify-with and no corpus; a deployed site says this in its own file"),
        ('share = "1/7"', "got share and no corpus"),
        ("train = 3", "got train and no corpus"),
        ('lins = "a"', "lins = 'a': there is no such key; did you mean 'lines'?"),
    ],
)
def test_a_site_with_a_language_and_no_clear_corpus_is_refused(tmp_path: Path, corpus: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        federation(tmp_path, clinic(corpus))
    assert f"federation.toml, site clinic: {told}" in str(caught.value)


def test_an_unknown_language_or_one_that_the_phrasebook_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="language = 'es-en' is not known"):
        federation(tmp_path, clinic('lines = "a"', language="es-en"))
    with pytest.raises(ConfigError, match="the phrasebook has no language 'sw'"):
        federation(tmp_path, clinic('phrasebook = "hospital"', language="sw"))


@pytest.mark.parametrize("key", ['lines = "a"', "public = true", 'deidentify-with = "a:b"'])
def test_a_direction_takes_nothing_that_is_for_a_language(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"site court: got {key.split()[0]}, which goes with language"):
        federation(tmp_path, SITE + key + "\n")


def test_a_federation_with_directions_and_languages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"got a language \(clinic\) and a direction \(court\); a federation either translates or"
    ):
        federation(tmp_path, SITE + clinic('lines = "a"'))


def test_documents_never_come_divided(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mode = 'given' is for translated text that is already split"):
        federation(tmp_path, '[split]\nmode = "given"\n' + clinic(""))


def documents(files: Corpus[str]) -> list[str]:
    twice = [list(files.read()) for _ in range(2)]
    assert twice[0] == twice[1]
    return twice[0]


def test_every_line_with_text_is_a_document(tmp_path: Path) -> None:
    path = write(tmp_path, notes="Uno. Dos.\r\n\n \t\nTres\u2028cuatro\n") / "notes.txt"
    assert documents(LineDocuments(path)) == ["Uno. Dos.", "Tres\u2028cuatro"]
    packed = tmp_path / "notes.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert documents(LineDocuments(packed)) == ["Uno. Dos.", "Tres\u2028cuatro"]


def test_shares_count_lines_from_one_and_give_each_to_one_site(tmp_path: Path) -> None:
    path = write(tmp_path, notes="".join(f"{number}\n" if number != 4 else "\n" for number in range(1, 9))) / "notes.txt"
    shares = [documents(LineDocuments(path, part, 3)) for part in (1, 2, 3)]
    assert shares == [["1", "7"], ["2", "5", "8"], ["3", "6"]]  # the empty line 4 is counted and is no document


def test_a_json_object_a_line_holds_a_document_in_its_field(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": 1, "note": "Uno.\\nDos."}\n\n{"note": " "}\n{"note": "Tr\\u00e9s \\ud83d\\ude00"}\n')
    assert documents(JsonDocuments(path, "note")) == ["Uno.\nDos.", "Trés 😀"]


SECRET = "Juana Quicksilver"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f'{{"text": "{SECRET}"', "is no JSON object; wanted one a line, with the text in 'text'"),
        (f'{{"text": "{SECRET}\\x"}}', "is no JSON object"),
        (f'["{SECRET}"]', "is no JSON object"),
        (f'"{SECRET}"', "is no JSON object"),
        ("[" * 100_000, "is no JSON object"),
        (f'{{"{SECRET}": "a", "b": "{SECRET}"}}', "has no field 'text'; name the one that holds the text with field"),
        (f'{{"text": ["{SECRET}"]}}', "'text' is of type list; wanted a string"),
        (f'{{"text": "{SECRET} \\ud800"}}', "'text' holds half a character"),
    ],
)
def test_a_bad_json_line_is_told_by_file_and_line_without_its_text(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text(f'{{"text": "Uno."}}\n{line}\n')
    with pytest.raises(CorpusError) as caught:
        list(JsonDocuments(path).read())
    assert f"{path}, line 2: {told}" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_notes_come_in_the_order_of_their_paths_from_subfolders_too(tmp_path: Path) -> None:
    write(tmp_path, b="Dos.\nTres.", a__z="Uno.", c__a="\ufeffCuatro.", d=" \n")
    (tmp_path / "e.md").write_text("No.")
    (tmp_path / "._b.txt").write_bytes(b"\0\5\x16\7")  # macOS puts one beside each file that it copies
    (tmp_path / "f.txt").mkdir()
    assert documents(Notes(tmp_path)) == ["Uno.", "Dos.\nTres.", "Cuatro."]
    assert [path.relative_to(tmp_path).as_posix() for path in Notes(tmp_path).paths()] == [
        "a/z.txt",
        "b.txt",
        "c/a.txt",
        "d.txt",
    ]


def test_a_note_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("señora".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a\.txt: byte 3 is not UTF-8 .*; convert the file to UTF-8"):
        documents(Notes(tmp_path))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("Uno aquí. Dos.".encode("utf-16-le"), "this is UTF-16; convert the file to UTF-8"),
        (b"Uno.\rDos.\r", "the file has 2 carriage returns and no line feed"),
        (b"Uno.\rDos.\n", "the file has 1 carriage returns and no line feed before its end"),
    ],
)
def test_a_note_passes_the_checks_of_other_text(tmp_path: Path, raw: bytes, told: str) -> None:
    (tmp_path / "a.txt").write_bytes(raw)
    with pytest.raises(CorpusError) as caught:
        documents(Notes(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/a.txt: {told}")
    (tmp_path / "a.txt").write_bytes(b"Uno.\r\nDos.")
    assert documents(Notes(tmp_path)) == ["Uno.\r\nDos."]


def test_a_note_may_be_named_in_capitals(tmp_path: Path) -> None:
    write(tmp_path, b="Dos.")
    (tmp_path / "A.TXT").write_text("Uno.")
    assert documents(Notes(tmp_path)) == ["Uno.", "Dos."]


def test_no_part_of_a_folder_of_notes_is_left_out_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "data/notes", a="Uno.", shut__b="Dos.")
    sites = federation(tmp_path, clinic('notes = "notes"')).sites
    scandir = os.scandir

    def only_open_ones(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    def told() -> str:
        with pytest.raises(CorpusError) as caught:
            check_corpora(sites)
        assert str(caught.value).startswith(f"site clinic: {folder}/")
        with pytest.raises(CorpusError):
            documents(Notes(folder))
        return str(caught.value).removeprefix(f"site clinic: {folder}/")

    check_corpora(sites)
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", only_open_ones)
        assert told() == "shut: cannot be read (Permission denied); check the folder's permissions"
    (folder / "c.txt").symlink_to("gone.txt")
    assert told() == "c.txt: is no file that can be read; mend the link or the permissions, or remove it"
    (folder / "c.txt").unlink()
    (folder / "link").symlink_to(write(tmp_path / "other", d="Tres."))
    assert told().startswith("link: is a link to a folder, which is not followed; put the folder itself here")
    (folder / "link").unlink()
    (folder / "c.txt").symlink_to(tmp_path / "other/d.txt")
    assert documents(Notes(folder)) == ["Uno.", "Tres.", "Dos."]


def test_files_and_folders_that_are_not_there_are_told_before_anything_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "empty").mkdir(parents=True)
    for corpus, told in {
        'lines = "a.txt"': "a.txt: there is no such file",
        'jsonl = "a.jsonl"': "a.jsonl: there is no such file",
        'notes = "a"': "a: there is no such folder; wanted a folder with a .txt file for each document",
        'notes = "empty"': "empty: holds no .txt file; wanted a folder",
    }.items():
        with pytest.raises(CorpusError) as caught:
            check_corpora(federation(tmp_path, clinic(corpus)).sites)
        assert f"site clinic: {data}/{told}" in str(caught.value)
    with pytest.raises(CorpusError, match=r"holds no \.txt file"):
        documents(Notes(data / "empty"))
    with pytest.raises(
        ConfigError, match="site clinic has no corpus here; give it lines, jsonl, notes, nway or phrasebook, or run"
    ):
        check_corpora(federation(tmp_path, clinic("")).sites)


def test_a_sentence_is_a_pair_of_itself_and_each_is_accounted_for(tmp_path: Path) -> None:
    notes = [f"El paciente {number} vino. Sí. El paciente {number} vino." for number in range(40)]
    write(tmp_path / "data", notes="\n".join(notes))
    rules = "[split]\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n[cleaning]\nmax-words = 3\nmin-words = 1\n"
    text = read_sites(federation(tmp_path, rules + clinic('lines = "notes.txt"')), frozenset())["clinic"]
    assert text.direction == Direction("es", "es")
    # Of each note: one of four words in two pieces, twice, and one word that stands in all.
    pieces = {Pair(half, half) for number in range(40) for half in ("El paciente", f"{number} vino.")}
    assert {pair for pairs in text.splits.values() for pair in pairs} <= pieces | {Pair("Sí.", "Sí.")}
    assert text.account.read == 40 * 5
    assert text.account.kept == sum(map(len, text.splits.values())) == 42
    assert text.account.dropped == {"duplicate": 200 - 42}


def test_text_of_which_nothing_is_kept_is_told_in_sentences(tmp_path: Path) -> None:
    write(tmp_path / "data", notes="Sí. No.\n")
    with pytest.raises(CorpusError, match=r"site clinic: none of 2 sentences was kept \(too-short 2\)"):
        read_sites(federation(tmp_path, clinic('lines = "notes.txt"')), frozenset())


@pytest.mark.parametrize("corpus", ['lines = "blank.txt"', 'lines = "full.txt"\nshare = "9/9"'])
def test_text_that_is_blank_is_named_with_its_file(tmp_path: Path, corpus: str) -> None:
    data = write(tmp_path / "data", blank="\n\n", full="Uno aquí.\n")
    with pytest.raises(CorpusError) as caught:
        read_sites(federation(tmp_path, clinic(corpus)), frozenset())
    file = corpus.split('"')[1]
    assert f"site clinic: got no sentences from {data}/{file}: the text, or its share, is empty" in str(caught.value)


def test_a_register_gives_its_side_in_the_language_and_grows_to_the_sizes_asked(tmp_path: Path) -> None:
    text = federation(tmp_path, clinic('phrasebook = "hospital"\ntrain = 90\ndev = 20\ntest = 20\n', language="de"))
    read = read_sites(text, frozenset())["clinic"]
    assert [len(read.splits[split]) for split in SPLITS] == [90, 20, 20]
    german = set(phrasebook.register_corpus("hospital", read.account.read, 1)["de"])
    assert all(pair.source == pair.target and pair.source in german for pairs in read.splits.values() for pair in pairs)


def test_text_in_one_language_can_be_dealt_out_and_asked_for_by_size(tmp_path: Path) -> None:
    tables = "[split]\nmixed = true\n[sizes]\ntrain = 12\ndev = 3\ntest = 3\n"
    sites = clinic('phrasebook = "hospital"', "one", "de") + clinic('phrasebook = "farm"', "two", "fr")
    texts = read_sites(federation(tmp_path, tables + sites), frozenset())
    assert {name: [len(text.splits[split]) for split in SPLITS] for name, text in texts.items()} == {
        "one": [12, 3, 3],
        "two": [12, 3, 3],
    }


def real(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def test_real_lines_in_seven_shares_are_all_lines_once(tmp_path: Path) -> None:
    path = real(DATA / "tico19") / "dev.es.txt.gz"
    shares = [list(LineDocuments(path, part, 7).read()) for part in range(1, 8)]
    assert [len(share) for share in shares] == [139, 139, 139, 139, 138, 138, 138]
    lines = gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
    assert [shares[number % 7][number // 7] for number in range(970)] == lines


def test_seven_sites_share_real_medical_text_and_no_sentence_stands_on_two_sides(tmp_path: Path) -> None:
    real(DATA / "tico19")
    entries = [clinic(f'nway = "tico19/dev.{{}}.txt.gz"\nshare = "{part}/7"', f"site-{part}", "en") for part in range(1, 8)]
    path = tmp_path / "federation.toml"
    path.write_text("".join(entries))
    seven = read_federation(path, DATA)
    check_corpora(seven.sites)
    texts = read_sites(seven, frozenset())
    assert texts == read_sites(seven, frozenset())
    for text in texts.values():
        text.account.check("site")
        assert text.account.kept == sum(map(len, text.splits.values()))
    held = {split: {pair.source for text in texts.values() for pair in text.splits[split]} for split in SPLITS}
    assert not held["train"] & held["dev"] | held["train"] & held["test"] | held["dev"] & held["test"]
    assert sum(text.account.read for text in texts.values()) >= 970
    assert len(held["train"]) > 500


def test_real_cases_are_split_whole(tmp_path: Path) -> None:
    docs = real(DATA / "medtext_es/docs.jsonl.gz")
    path = tmp_path / "federation.toml"
    path.write_text(clinic('jsonl = "medtext_es/docs.jsonl.gz"'))
    text = read_sites(read_federation(path, DATA), frozenset())["clinic"]
    assert text.account.read > 10_000
    assert text.account.kept == sum(map(len, text.splits.values())) > 0.95 * text.account.read
    home = {pair.source: split for split, pairs in text.splits.items() for pair in pairs}
    cases = [json.loads(line)["text"] for line in gzip.decompress(docs.read_bytes()).decode().splitlines()]
    assert len(cases) == 750
    for case in cases:
        # A sentence with a line of its own is found as it stands; long ones are in no other case.
        lines = [" ".join(line.split()) for line in case.split("\n")]
        assert len({home[line] for line in lines if len(line) > 80 and line in home}) <= 1
