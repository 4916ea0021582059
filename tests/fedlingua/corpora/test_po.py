"""Catalogues of gettext: which of their strings are text with its translation, and every file that cannot be one."""

import struct
from pathlib import Path

import polib
import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.corpora import po
from fedlingua.corpora.po import PoFile, placeholders
from fedlingua.corpora.read import Pair

HEAD = """
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=n > 1;\\n"
"""
DOG = '\nmsgid "a dog"\nmsgstr "um cão"\n'


def write(folder: Path, content: str | bytes, name: str = "messages.po") -> PoFile:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return PoFile(folder / name)


def compiled(file: PoFile) -> PoFile:
    """The same catalogue as a .mo."""
    polib.pofile(str(file.path)).save_as_mofile(str(file.path.with_suffix(".mo")))
    return PoFile(file.path.with_suffix(".mo"))


def refusal(file: PoFile) -> str:
    with pytest.raises(CorpusError) as caught:
        list(file.read())
    return str(caught.value)


def test_fuzzy_obsolete_and_untranslated_strings_and_the_header_are_left_out(tmp_path: Path) -> None:
    others = """
#, fuzzy, c-format
msgid "%d houses"
msgstr "%d coisas"

#~ msgid "old"
#~ msgstr "velho"

msgid "new"
msgstr ""

#| msgid "two cat"
msgid "two cats"
msgstr "dois gatos"
"""
    file = write(tmp_path, HEAD + DOG + others)
    assert list(file.read()) == [Pair("a dog", "um cão"), Pair("two cats", "dois gatos")]
    assert sorted(compiled(file).read()) == list(file.read())


@pytest.mark.parametrize(
    ("rule", "forms", "pairs"),
    [
        ("nplurals=2; plural=n > 1;", ("%d cão", "%d cães"), [("%d dog", "%d cão"), ("%d dogs", "%d cães")]),
        ("nplurals=1; plural=0;", ("犬%d匹",), [("%d dogs", "犬%d匹")]),
        ("nplurals=4; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : 3;", ("0", "1", "2", "3"), [("%d dog", "1"), ("%d dogs", "3")]),
        ("nplurals=2; plural=n %% 0;", ("a", "b"), [("%d dog", "a"), ("%d dogs", "b")]),
        ("nplurals=2; plural=import os;", ("a", "b"), [("%d dog", "a"), ("%d dogs", "b")]),
    ],
    ids=["Portuguese", "Japanese", "Arabic", "divided by nothing", "no rule"],
)
def test_of_plural_forms_those_for_one_and_for_several_are_read(
    tmp_path: Path, rule: str, forms: tuple[str, ...], pairs: list[tuple[str, str]]
) -> None:
    lines = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    head = HEAD.replace("nplurals=2; plural=n > 1;", rule)
    file = write(tmp_path, f'{head}\nmsgid "%d dog"\nmsgid_plural "%d dogs"\n{lines}')
    assert list(file.read()) == pairs
    assert list(compiled(file).read()) == pairs


def test_marks_white_space_and_contexts_leave_a_string_as_it_is(tmp_path: Path) -> None:
    text = """
msgctxt "menu"
msgid "&Open"
msgstr "_Abrir"

msgctxt "door"
msgid "&Open"
msgstr ""
"Abra\\n"
"  <b>\\"%s\\"</b>\u2028\\\\n"
"""
    file = write(tmp_path, HEAD + text)
    assert list(file.read()) == [Pair("&Open", "_Abrir"), Pair("&Open", 'Abra <b>"%s"</b>\u2028\\n')]
    assert sorted(compiled(file).read()) == sorted(file.read())


def test_a_key_stands_for_the_english_in_its_comment(tmp_path: Path) -> None:
    text = """
#. A greeting.
#. Default: "Hello \\"${name}\\"\\nand all
#. who are with you"
#. Not: "this"
msgid "label_hello"
msgstr "Oi"

#. Default: "none"
msgid "The title, if any"
msgstr "O título"
"""
    file = write(tmp_path, HEAD + text)
    assert list(file.read()) == [Pair('Hello "${name}" and all who are with you', "Oi"), Pair("The title, if any", "O título")]
    assert Pair("label_hello", "Oi") in list(compiled(file).read())


def test_a_charset_is_that_of_the_header(tmp_path: Path) -> None:
    latin = (HEAD + DOG).replace("UTF-8", "ISO-8859-1").encode("latin-1")
    assert list(write(tmp_path, latin).read()) == [Pair("a dog", "um cão")]
    assert list(write(tmp_path, b"\xef\xbb\xbf# A comment" + DOG.encode()).read()) == [Pair("a dog", "um cão")]
    assert list(write(tmp_path, (HEAD + DOG).replace("UTF-8", "CHARSET")).read()) == [Pair("a dog", "um cão")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "x.po is empty; a corpus needs at least one string"),
        (HEAD, "none of its 0 strings is translated"),
        (
            HEAD + '\n#, fuzzy\nmsgid "a secret"\nmsgstr "b"\n',
            "none of its 1 strings is translated; fuzzy and obsolete ones do not count",
        ),
        ("<html>a secret</html>", "x.po, line 1: is not as in gettext's catalogues; is the file whole?"),
        (HEAD + DOG + '\nmsgid "a sec', "x.po, line 10: is not as in"),
        (HEAD + DOG + 'msgsecret "a"\n', "x.po, line 9: is not as in"),
        (HEAD + DOG + 'msgid "a "secret" word"\n', "x.po, line 9: is not as in"),
        (HEAD + DOG + '#| secret "a" b\n', "x.po, line 9: is not as in"),
        (
            (HEAD + DOG).encode("latin-1"),
            "x.po: is not in UTF-8; unpack it, convert it to UTF-8, or name its charset in its header",
        ),
        ((HEAD + DOG).encode("utf-16"), "x.po: is not in utf-8; unpack it"),
        (HEAD.replace("UTF-8", "ascii") + DOG, "x.po: is not in ascii"),
    ],
    ids=["no byte", "no string", "fuzzy", "HTML", "cut", "keyword", "quotes", "previous", "Latin-1", "UTF-16", "ASCII"],
)
def test_what_is_no_catalogue_is_refused_without_its_text(tmp_path: Path, content: str | bytes, told: str) -> None:
    message = refusal(write(tmp_path, content, "x.po"))
    assert told in message
    assert str(tmp_path) in message
    assert "secret" not in message


def test_a_missing_file_and_one_too_large_to_be_read_whole_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no such file" in refusal(PoFile(tmp_path / "none.po"))
    file = write(tmp_path, HEAD + DOG)
    monkeypatch.setattr(po, "CATALOGUE_BYTES", file.path.stat().st_size - 1)
    assert "messages.po: has more than 1" in refusal(file)


def test_a_mo_is_read_in_either_byte_order_and_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    file = compiled(write(tmp_path, HEAD + DOG))
    whole = file.path.read_bytes()
    for end in range(1, len(whole) - 1):
        assert "messages.mo" in refusal(write(tmp_path, whole[:end], "messages.mo"))
    numbers = struct.unpack_from("<15I", whole)
    assert list(write(tmp_path, struct.pack(">15I", *numbers) + whole[60:]).read()) == [Pair("a dog", "um cão")]


@pytest.mark.parametrize(
    ("charset", "told"), [(b"utf-7", "is not in utf-7; compile it again from its .po"), (b"zlib", "is not in zlib")]
)
def test_a_mo_with_the_wrong_charset_is_refused(tmp_path: Path, charset: bytes, told: str) -> None:
    whole = compiled(write(tmp_path, HEAD + DOG)).path.read_bytes()
    assert told in refusal(write(tmp_path, whole.replace(b"UTF-8", charset.ljust(5)), "messages.mo"))


def test_a_mo_whose_strings_overlap_does_not_swell(tmp_path: Path) -> None:
    """A hundred thousand entries of a string of 100 kB each would be 10 GB."""
    count, text = 100_000, b"x" * 100_000
    table = struct.pack("<2I", len(text), 28 + 8 * count) * count
    head = struct.pack("<7I", 0x950412DE, 0, count, 28, 28, 0, 0)
    assert "its strings overlap" in refusal(write(tmp_path, head + table + text, "x.mo"))
    head = struct.pack("<7I", 0x950412DE, 0, 2**32 - 1, 28, 28, 0, 0)
    assert "x.mo: is cut off; get the file again" in refusal(write(tmp_path, head + table, "x.mo"))


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("%(who)s has %d of %s", "%d de %s: %(who)s", True),
        ("%s of %s", "%2$s, %1$s", True),
        ("%s of %s", "%s", False),
        ("%(who)s", "%(quem)s", False),
        ("{} to {x.y!r:>4}", "{x.y!r:>4}: {}", True),
        ("{name}", "{nome}", False),
        ("<b>${x}</b>", "<i>{x}</i>", False),
        ("{{ count }}", "{{count}}", True),
        ("100% sure, 5%% more", "100% seguro", True),
        ("%1 of %2", "%1", False),
        ("{n, plural, one {# dog} other {# dogs}}", "{n, plural, one {# cão} other {# cães}}", True),
    ],
)
def test_what_a_program_fills_in_is_counted_in_whatever_order(source: str, target: str, same: bool) -> None:
    assert (placeholders(source) == placeholders(target)) is same
