"""Catalogues of gettext: which of their strings are text with its translation, and every file that cannot be one."""

from pathlib import Path

import polib
import pytest

from fedlingua.common.errors import CorpusError
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
