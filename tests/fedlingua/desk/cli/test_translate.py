"""`fedlingua translate`: line counts exact, files whole or not at all, translation memories in and out, and who answers."""

import gzip
import io
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import IO

import pytest
from lxml import etree
from typer.testing import CliRunner, Result

from fedlingua.common.errors import CorpusError, FedlinguaError
from fedlingua.common.languages import Direction
from fedlingua.common.visible import trimmed
from fedlingua.corpora import read
from fedlingua.corpora.read import Pair
from fedlingua.corpora.tmx import TmxFile
from fedlingua.desk.cli import translate
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.options import TranslateOptions
from tests.translated_runs import translator_of_site

TMX_14 = """
<!ELEMENT tmx (header, body)> <!ATTLIST tmx version CDATA #FIXED "1.4">
<!ELEMENT header EMPTY>
<!ATTLIST header creationtool CDATA #REQUIRED creationtoolversion CDATA #REQUIRED segtype (block|paragraph|sentence|phrase) #REQUIRED
  o-tmf CDATA #REQUIRED adminlang CDATA #REQUIRED srclang CDATA #REQUIRED datatype CDATA #REQUIRED>
<!ELEMENT body (tu*)> <!ELEMENT tu (tuv+)> <!ELEMENT tuv (seg)> <!ATTLIST tuv xml:lang CDATA #REQUIRED> <!ELEMENT seg (#PCDATA)>
"""
"""TMX 1.4b's document type, as far as it is used here, requirements as there."""
AWKWARD = "Der Arzt liest.\n\nGuten\u2028Morgen\x0b.\r\n \u200b \n<b>&amp; ja</b>\nohne Ende"
LINES = ["Der Arzt liest.", "", "Guten\u2028Morgen\x0b.", " \u200b ", "<b>&amp; ja</b>", "ohne Ende"]


def asked(run: Path, *arguments: object, text: str | bytes = b"") -> Result:
    return CliRunner().invoke(app, ["translate", "--run", str(run), *map(str, arguments)], input=text)


@pytest.fixture(scope="module")
def wanted(finished_run: Path) -> list[str]:
    """What the hospital makes of every line."""
    translator = translator_of_site(finished_run, "hospital")
    return [translator.translate([line])[0] for line in LINES]


@pytest.mark.parametrize("options", [[], ["--batch", 1], ["--batch", 2]])
def test_as_many_lines_come_out_as_go_in(finished_run: Path, wanted: list[str], tmp_path: Path, options: list[object]) -> None:
    (tmp_path / "in.txt").write_bytes(AWKWARD.encode())
    with gzip.open(tmp_path / "in.txt.gz", "wb") as file:
        file.write(AWKWARD.encode())
    ways = [((), AWKWARD), ((tmp_path / "in.txt",), b""), ((tmp_path / "in.txt.gz",), b"")]
    for file, text in ways if not options else ways[:1]:
        done = asked(finished_run, "--site", "hospital", *options, *file, text=text)
        assert done.exit_code == 0, done.output
        assert done.stdout == "".join(f"{line}\n" for line in wanted)
        assert done.stderr == "de-fr: site hospital\n"
    assert [not line for line in wanted] == [False, True, False, True, False, False]


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "Ja", "\ufeffJa\n"])
def test_nothing_gives_nothing_and_a_mark_of_utf8_is_no_text(finished_run: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "in.txt").write_bytes(text.encode())
    of_file = asked(finished_run, "--site", "hospital", tmp_path / "in.txt")
    piped = asked(finished_run, "--site", "hospital", text=text)
    assert of_file.stdout == piped.stdout
    assert of_file.stdout.count("\n") == max(text.count("\n"), bool(text))
    if "Ja" in text:
        assert of_file.stdout == asked(finished_run, "--site", "hospital", text="Ja").stdout


def test_a_site_that_ended_below_the_backbone_is_told(finished_run: Path) -> None:
    file = finished_run / "sites" / "hospital" / "scores-hospital.json"
    own = json.loads(before := file.read_text())["hospital"]
    for gain, warnings in ((-1.0, 1), (1.0, 0)):
        file.write_text(json.dumps({"hospital": {**own, "bleu": own["base_bleu"] + gain}}))
        told = asked(finished_run, "--site", "hospital", text="Der Arzt liest.\n").stderr
        assert told.count("warning: sites that end below the backbone, in BLEU: hospital (") == warnings
    file.write_text(before)


def test_a_file_is_written_whole_with_a_summary(finished_run: Path, wanted: list[str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(AWKWARD.encode())
    to = tmp_path / "new" / "out.txt.gz"
    done = asked(finished_run, "--site", "hospital", tmp_path / "in.txt", "--to", to, "--format", "json")
    summary = json.loads(done.stdout)
    assert gzip.decompress(to.read_bytes()).decode() == "".join(f"{line}\n" for line in wanted)
    assert [number for number, line in enumerate(wanted) if not line] == [1, 3]
    assert {key: summary[key] for key in ("to", "direction", "answered_by", "site", "lines", "empty", "cut")} == {
        "to": str(to),
        "direction": "de-fr",
        "answered_by": "site hospital",
        "site": "hospital",
        "lines": 6,
        "empty": 2,
        "cut": 0,
    }
    assert summary["lines_a_second"] == pytest.approx(6 / summary["seconds"], rel=0.2)
    assert [file.name for file in to.parent.iterdir()] == ["out.txt.gz"]
    again = asked(finished_run, "--site", "hospital", tmp_path / "in.txt", "--to", to)
    assert (again.exit_code, "already exists" in str(again.exception)) == (1, True)


def test_as_json_the_translations_are_in_the_answer(finished_run: Path, wanted: list[str]) -> None:
    answer = json.loads(asked(finished_run, "--site", "hospital", "--format", "json", text=AWKWARD).stdout)
    assert (answer["to"], answer["lines"], answer["translations"]) == (None, 6, wanted)


def test_what_breaks_off_leaves_no_file(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"Ja\n" * 3 + b"\xff\xfe\n")
    for ending in ("txt", "tmx"):
        done = asked(finished_run, "--site", "hospital", tmp_path / "in.txt", "--to", tmp_path / f"out.{ending}")
        assert done.exit_code == 1
        assert "line 4: byte 1 of the line is not UTF-8" in str(done.exception)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt"]


def test_text_that_cannot_be_read_is_not_blamed_on_where_it_goes(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shut(file: Path) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    (tmp_path / "in.txt").write_text("Ja\n")
    monkeypatch.setattr(read, "opened", shut)
    done = asked(finished_run, "--site", "hospital", tmp_path / "in.txt", "--to", tmp_path / "out.txt")
    assert isinstance(done.exception, CorpusError)
    assert "in.txt" in str(done.exception)


def test_text_becomes_a_valid_memory_that_reads_back(finished_run: Path, tmp_path: Path) -> None:
    to, plain = tmp_path / "out.tmx", AWKWARD.replace("\x0b", "")
    done = asked(finished_run, "--direction", "cs-fr", "--to", to, text=plain)
    assert done.exit_code == 0, done.output
    assert "cs-fr: encoder cluster Slavic, decoder cluster Romance" in done.stderr
    assert "6 lines in" in done.stderr
    tree = etree.parse(str(to))
    document_type = etree.DTD(io.StringIO(TMX_14))
    assert document_type.validate(tree), document_type.error_log
    header = tree.find("header")
    assert (header.get("creationtool"), header.get("srclang")) == ("fedlingua", "cs")
    lines = asked(finished_run, "--direction", "cs-fr", text=plain).stdout.split("\n")[:-1]
    sources = [trimmed(line.replace("\x0b", "")) for line in LINES]
    read = list(TmxFile(to, Direction("cs", "fr")).read())
    assert read == [Pair(*both) for both in zip(sources, lines, strict=True)]


MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="*all*"
 datatype="plaintext"/><body>
<tu><tuv xml:lang="de-DE"><seg>Der <bpt i="1">&lt;b&gt;</bpt>Arzt<ept i="1">&lt;/b&gt;</ept> liest.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>no German here</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>ohne
   Ende</seg></tuv><tuv xml:lang="en"><seg>endless</seg></tuv></tu>
</body></tmx>
"""


def test_of_a_memory_the_sources_side_is_translated_and_units_without_it_are_kept_and_counted(
    finished_run: Path, wanted: list[str], tmp_path: Path
) -> None:
    (tmp_path / "in.tmx").write_text(MEMORY)
    lines = asked(finished_run, "--site", "hospital", tmp_path / "in.tmx")
    assert lines.stdout == f"{wanted[0]}\n\n{wanted[5]}\n"
    assert "1 of 3 units have no text in 'de'; they are kept, empty" in lines.stderr
    done = asked(finished_run, "--site", "hospital", tmp_path / "in.tmx", "--to", tmp_path / "out.tmx.gz", "--format", "json")
    assert json.loads(done.stdout)["without_source"] == 1
    read = list(TmxFile(tmp_path / "out.tmx.gz", Direction("de", "fr")).read())
    assert read == [Pair("Der Arzt liest.", wanted[0]), Pair("", ""), Pair("ohne Ende", wanted[5])]


def test_a_memory_without_the_language_is_refused_and_leaves_nothing(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.tmx").write_text(MEMORY)
    done = asked(finished_run, "--site", "school", tmp_path / "in.tmx", "--to", tmp_path / "out.tmx")
    assert re.search(r"none of 3 units has 'pl'; got en 2, de-DE 1, de 1", str(done.exception))
    assert not (tmp_path / "out.tmx").exists()


def test_what_tmx_cannot_hold_is_told_with_its_line(finished_run: Path, tmp_path: Path) -> None:
    done = asked(finished_run, "--site", "hospital", "--to", tmp_path / "out.tmx", text="ja\nnein\x01\n")
    assert "line 2 has the character U+0001, which TMX cannot hold" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_options_of_decoding_are_the_runs_unless_given(finished_run: Path) -> None:
    text = "Der reiche Tourist hat das Buch des Arztes gelesen.\n"
    same = asked(finished_run, "--site", "hospital", "--beam", 2, "--max-tokens", 32, "--max-decode-tokens", 16, text=text)
    assert same.stdout == asked(finished_run, "--site", "hospital", text=text).stdout
    short = asked(finished_run, "--site", "hospital", "--max-decode-tokens", 2, text=text)
    assert len(short.stdout) < len(same.stdout)
    cut = asked(finished_run, "--site", "hospital", "--max-tokens", 6, text=text + "Ja\n")
    assert "1 of 2 lines are longer than 6 tokens; the rest of them was not read" in cut.stderr
    assert "longer" not in same.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs --site or --direction"),
        (["--site", "hospital", "--direction", "de-fr"], "got --site and --direction; leave one out"),
        (["--site", "hospitl"], "no site 'hospitl'; did you mean 'hospital'"),
        (["--direction", "de-xx"], "language = 'xx' is not known"),
        (["--direction", "fi-de"], "no site has source fi or another of Finnic"),
        (["--site", "hospital", "--beam", "0"], "--beam 0; wanted 1 to 64"),
        (["--site", "hospital", "--beam", "65"], "--beam 65; wanted 1 to 64"),
        (["--site", "hospital", "--batch", "-1"], "--batch -1; wanted 0 or more"),
        (["--site", "hospital", "--max-tokens", "2"], "--max-tokens 2; wanted 3 or more"),
        (["--site", "hospital", "--max-decode-tokens", "0"], "--max-decode-tokens 0; wanted 1 or more"),
        (["--site", "hospital", "nowhere.txt"], "nowhere.txt: there is no such file"),
    ],
)
def test_mistakes_are_told_before_the_model_loads(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setattr("fedlingua.exchange.trainable.build_trainable", lambda settings: pytest.fail("the model was loaded"))
    done = asked(finished_run, *arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, FedlinguaError)
    assert words in str(done.exception)


def test_a_language_that_the_backbone_has_not_is_refused(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedlingua.backbones.codec import Codec
    from fedlingua.backbones.load import load_backbone

    monkeypatch.setattr("fedlingua.exchange.trainable.load_backbone", load_backbone)  # read anew, not the tests' copy
    made = Codec.__init__

    def without_danish(self: Codec, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        self.reads.discard("da")

    monkeypatch.setattr(Codec, "__init__", without_danish)
    done = asked(finished_run, "--direction", "da-fr")
    assert "direction da-fr: the backbone has no language 'da'" in str(done.exception)


def test_long_work_tells_how_far_it_is(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "QUIET_S", 0.0)
    monkeypatch.setattr(translate, "AT_ONCE_OF_A_FILE", 2)
    (tmp_path / "in.txt").write_text("Ja\n" * 5)
    done = asked(finished_run, "--site", "hospital", tmp_path / "in.txt", "--to", tmp_path / "out.txt")
    assert re.findall(r"^(\d) lines, [\d.,]+ a second$", done.stderr, re.MULTILINE) == ["2", "4", "5"]


def test_memory_stays_where_it_is_however_long_the_text(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of endless input the first lines come out: nothing waits for the end."""
    read = 0

    class Endless:
        def readline(self, most: int) -> bytes:
            nonlocal read
            read += 1
            return b"Ja\n"

    asked_for = TranslateOptions()
    no_pipe = {"buffer": Endless(), "isatty": lambda self: False, "fileno": io.BytesIO().fileno}
    monkeypatch.setattr(translate.sys, "stdin", type("In", (), no_pipe)())
    chunks = translate._Work(translator_of_site(finished_run, "hospital"), asked_for, None).chunks()
    assert [pair.source for _ in range(2) for pair in next(chunks)] == ["Ja"] * 2 * translate.AT_ONCE
    assert read == 2 * translate.AT_ONCE


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The end to write into of a real pipe that is standard input."""
    read_end, write_end = os.pipe()
    with open(read_end) as stdin, open(write_end, "wb", buffering=0) as written:
        monkeypatch.setattr(translate.sys, "stdin", stdin)
        yield written


def test_from_a_pipe_a_line_is_translated_before_the_next_one_comes(
    finished_run: Path, wanted: list[str], pipe: IO[bytes]
) -> None:
    came = Queue[str]()

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            came.put(text)
            return len(text)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(translate.translate_with, translator_of_site(finished_run, "hospital"), TranslateOptions(), Output())
        try:
            for number in (0, 5):
                pipe.write(f"{LINES[number]}\n".encode())
                assert came.get(timeout=60) == f"{wanted[number]}\n"
        finally:
            pipe.close()
        assert done.result(60)["lines"] == 2


def test_what_has_come_through_a_pipe_is_translated_together_up_to_a_limit(finished_run: Path, pipe: IO[bytes]) -> None:
    work = translate._Work(translator_of_site(finished_run, "hospital"), TranslateOptions(), None)
    pipe.write(b"Ja\n" * (3 * translate.AT_ONCE) + b"\xff\n")
    pipe.close()
    sizes = list[int]()
    with pytest.raises(CorpusError, match=f"standard input, line {3 * translate.AT_ONCE + 1}: byte 1 of the line is not UTF-8"):
        deque(sizes.append(len(chunk)) for chunk in work.chunks())
    assert (sum(sizes), max(sizes) <= translate.AT_ONCE) == (3 * translate.AT_ONCE, True)


def test_a_deployed_site_translates_with_the_same_options(
    finished_run: Path, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--name", "hospital", "--direction", "de-fr", "--server", "127.0.0.1:9092", "--phrasebook", "hospital"]
    made = CliRunner().invoke(app, ["site", "init", *arguments, "--to", str(tmp_path / "site"), "--insecure"])
    assert made.exit_code == 0, made.output
    shutil.copytree(finished_run / "sites" / "hospital", tmp_path / "site" / "state" / "runs" / "r1" / "hospital")
    command = ["site", "translate", "--site", str(tmp_path / "site")]
    done = CliRunner().invoke(app, command, input=AWKWARD)
    assert done.exit_code == 0, done.output
    assert done.stdout == "".join(f"{line}\n" for line in wanted)
    assert "de-fr: site hospital" in done.stderr
    written = CliRunner().invoke(app, [*command, "--to", str(tmp_path / "out.tmx"), "--beam", "1"], input="Ja\n")
    assert written.exit_code == 0, written.output
    assert [pair.source for pair in TmxFile(tmp_path / "out.tmx", Direction("de", "fr")).read()] == ["Ja"]
    refused = CliRunner().invoke(app, [*command, "--beam", "0"], input="Ja\n")
    assert "--beam 0; wanted 1 to 64" in str(refused.exception)
