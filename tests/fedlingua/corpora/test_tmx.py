"""Translation memories: what of a unit is text, which of its variants, and every file that cannot be one."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.tmx import TmxFile

DE_EN = Direction("de", "en")
HEAD, END = '<tmx version="1.4">\n<header/>\n<body>\n', "</body></tmx>\n"


def unit(*variants: tuple[str, str]) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants) + "</tu>\n"


DOG = unit(("de", "ein Hund"), ("en", "a dog"))


def write(folder: Path, content: str | bytes, name: str = "memory.tmx") -> TmxFile:
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return TmxFile(folder / name, DE_EN)


def refusal(file: TmxFile) -> str:
    with pytest.raises(CorpusError) as caught:
        list(file.read())
    return str(caught.value)


@pytest.mark.parametrize("name", ["memory.tmx", "memory.tmx.gz"])
def test_every_unit_is_a_pair_whatever_the_order_of_its_variants(tmp_path: Path, name: str) -> None:
    cats = unit(("fr", "deux chats"), ("en", "two cats"), ("de", "zwei Katzen"))
    file = write(tmp_path, HEAD + DOG + cats + END, name)
    assert list(file.read()) == [Pair("ein Hund", "a dog"), Pair("zwei Katzen", "two cats")]
    assert list(TmxFile(file.path, Direction("en", "de")).read())[1] == Pair("two cats", "zwei Katzen")


def test_a_variant_of_any_country_is_its_language_and_the_first_of_two_is_taken(tmp_path: Path) -> None:
    units = unit(("DE_at", "a"), ("en-GB", "lorry"), ("en-US", "truck")) + unit(("de-Latn-CH", "b"), ("EN", "x"))
    assert list(write(tmp_path, HEAD + units + END).read()) == [Pair("a", "lorry"), Pair("b", "x")]


def test_a_scripts_variants_are_told_apart_and_its_countries_are_not(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + unit(("zh-Hant-TW", "國"), ("zh-CN", "国"), ("en", "country")) + END)
    for direction, source in (("zh-Hant--en", "國"), ("zh-Hans--en", "国"), ("zh-en", "國")):
        assert list(TmxFile(file.path, parse_direction(direction)).read()) == [Pair(source, "country")]
    with pytest.raises(CorpusError, match="none of 1 units has 'zh-Hant-HK'; got zh-Hant-TW 1, zh-CN 1, en 1"):
        list(TmxFile(file.path, parse_direction("zh-Hant-HK--en")).read())


def test_a_unit_with_the_very_code_is_read_by_it(tmp_path: Path) -> None:
    both = unit(("de", "a"), ("en-GB", "lorry"), ("en", "truck"))
    file = write(tmp_path, HEAD + both + unit(("de", "b"), ("en-GB", "flat")) + END)
    assert list(file.read()) == [Pair("a", "truck"), Pair("b", "flat")]
    british = TmxFile(file.path, Direction("de", "en-GB"))
    assert list(british.read()) == [Pair("a", "lorry"), Pair("b", "flat")]


def test_an_older_code_of_a_file_is_read_as_the_newer(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + unit(("iw", "shalom"), ("in", "halo")) + END)
    assert list(TmxFile(file.path, parse_direction("iw-id")).read()) == [Pair("shalom", "halo")]


def test_the_older_attribute_of_tmx_1_1_names_a_language_too(tmp_path: Path) -> None:
    assert list(write(tmp_path, HEAD + DOG.replace("xml:lang", "lang") + END).read()) == [Pair("ein Hund", "a dog")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('a <bpt i="1">{\\b </bpt>bold<ept i="1">}</ept> word', "a bold word"),
        ('<it pos="begin">&lt;p&gt;</it>one', "one"),
        ("A<ph>{\\footnote <sub>of its own</sub>}</ph> note", "A note"),
        ("<ut>{\\cs7</ut>old", "old"),
        ("in <hi>Rome <ph>x</ph>today</hi>, yes", "in Rome today, yes"),
        ("1 &lt; 2 &amp; &#228;", "1 < 2 & ä"),
        ("<![CDATA[<b>]]><!-- no --> c<?pi no?>d", "<b> cd"),
        ("two\n      lines", "two lines"),
        ('one<ph x="1" type="lb"/>two', "one two"),
        ('one <ph type="x-LineBreak">2</ph> two', "one two"),
        ("Dosis:<ph>&lt;br/&gt;</ph>5 mg", "Dosis: 5 mg"),
        ("one<it>&lt;/p&gt;</it><it>&lt;p class='x'&gt;</it>two", "one two"),
        (
            "one<ut>{\\line }</ut>two<ph>\\n</ph>three<ph>\n</ph>four<ph>&lt;w:br w:type='page'/&gt;</ph>five",
            "one two three four five",
        ),
        ('<ph type="lb"/>one<ph type="lb"/>', "one"),
        ("un<bpt>&lt;b&gt;</bpt>glaub<ept>&lt;/b&gt;</ept>lich<ph>&lt;wbr/&gt;</ph>e<ph>\\new</ph>r", "unglaublicher"),
        ("a\u2028b\x85c", "a\u2028b\x85c"),
        ("", ""),
    ],
)
def test_text_is_kept_and_codes_are_dropped(tmp_path: Path, segment: str, text: str) -> None:
    file = write(tmp_path, HEAD + unit(("de", segment), ("en", "x")) + END)
    assert list(file.read()) == [Pair(text, "x")]


@pytest.mark.parametrize("name", ['xmlns="http://www.lisa.org/tmx14"', 'xmlns="urn:other"'])
def test_elements_may_be_in_a_namespace(tmp_path: Path, name: str) -> None:
    bold = DOG.replace("Hund", "<hi>Hund</hi><ph>x</ph>")
    file = write(tmp_path, HEAD.replace("<tmx", f"<tmx {name}") + bold + END)
    assert list(file.read()) == [Pair("ein Hund", "a dog")]


def test_elements_with_a_prefix_are_read_too(tmp_path: Path) -> None:
    text = (HEAD + DOG + END).replace("</", "</t:").replace("<tmx", '<tmx xmlns:t="http://www.lisa.org/tmx14"')
    for each in ("tmx", "header", "body", "tu>", "tuv", "seg"):
        text = text.replace(f"<{each}", f"<t:{each}")
    assert list(write(tmp_path, text).read()) == [Pair("ein Hund", "a dog")]


def test_a_unit_without_one_of_the_languages_has_an_empty_side(tmp_path: Path) -> None:
    units = DOG + unit(("de", "allein")) + unit(("fr", "seul")) + "<tu/>" + '<tu><tuv xml:lang="de"/></tu>'
    empty = Pair("", "")
    assert list(write(tmp_path, HEAD + units + END).read()) == [
        Pair("ein Hund", "a dog"),
        Pair("allein", ""),
        empty,
        empty,
        empty,
    ]


def test_a_language_that_no_unit_has_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    units = unit(("de", "a"), ("xx-YY", "b")) + unit(("de", "c"), ("tlh", "d")) + "<tu><tuv><seg>e</seg></tuv></tu>"
    assert "none of 3 units has 'en'; got de 2, xx-YY 1, tlh 1" in refusal(write(tmp_path, HEAD + units + END))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_xml_says_its_encoding_itself(tmp_path: Path, encoding: str) -> None:
    text = HEAD + DOG.replace("Hund", "Hündchen") + END
    assert list(write(tmp_path, text.encode(encoding)).read()) == [Pair("ein Hündchen", "a dog")]


def test_a_document_type_is_passed_over_and_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY dog "cat">')
    file = write(tmp_path, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n' + HEAD + DOG + END)
    assert list(file.read()) == [Pair("ein Hund", "a dog")]
    told = refusal(write(tmp_path, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n' + HEAD + DOG.replace("dog", "&dog;") + END))
    assert "memory.tmx, line 5: uses an entity" in told


BOMB = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        ('<!ENTITY dog SYSTEM "file:///etc/passwd">', "&dog;"),
        ('<!ENTITY % far SYSTEM "http://127.0.0.1:9/x.dtd"> %far;', "dog"),
        ('<!ENTITY dog "cat">', "&dog;"),
        ('<!ENTITY dog "cat">', "dog"),
        (BOMB, "&a11;"),
    ],
    ids=["file", "address", "text", "unused", "bomb"],
)
def test_entities_are_refused_before_any_is_expanded(tmp_path: Path, declared: str, used: str) -> None:
    file = write(tmp_path, f"<!DOCTYPE tmx [{declared}]>\n{HEAD}{DOG.replace('dog', used)}{END}")
    told = refusal(file)
    # The parser itself gives up on what swells, before it is asked to expand it.
    assert "its document type declares entities" in told or (declared == BOMB and "RESOURCE_LIMIT" in told)


def test_a_bomb_in_an_attribute_does_not_go_off(tmp_path: Path) -> None:
    head = HEAD.replace("<header/>", '<header x="&a11;"/>')
    assert "its document type declares entities" in refusal(write(tmp_path, f"<!DOCTYPE tmx [{BOMB}]>\n{head}{DOG}{END}"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "memory.tmx is empty"),
        ("ein Hund\ta dog\n", "line 1: is not well-formed XML"),
        ("<html><body/></html>", "holds no unit (<tu>); is it TMX?"),
        (HEAD + END, "holds no unit"),
        (HEAD + DOG + DOG + "<tu>", "line 6: is not well-formed XML (TAG_NOT_FINISHED), after 2 units"),
        (HEAD + DOG + DOG.replace("dog", "d<g") + END, "line 5: is not well-formed XML"),
        (HEAD + DOG + DOG.replace("dog", "d\0g") + END, "line 5: is not well-formed XML (INVALID_CHAR), after 1 units"),
        (HEAD + DOG + DOG.replace("dog", "d&hellip;g") + END, "line 5: is not well-formed XML (UNDECLARED_ENTITY)"),
        (
            (HEAD + DOG + DOG).encode().replace(b"dog", b"d\xfcg") + END.encode(),
            "line 4: is not well-formed XML (INVALID_ENCODING)",
        ),
        (HEAD + DOG.replace("a dog", "<hi>" * 5000 + "</hi>" * 5000) + END, "RESOURCE_LIMIT"),
    ],
    ids=["empty", "no xml", "other xml", "no unit", "cut", "tag", "nul", "undeclared", "utf-8", "deep"],
)
def test_what_is_no_whole_memory_is_told_with_file_and_line(tmp_path: Path, content: str | bytes, told: str) -> None:
    assert told in refusal(write(tmp_path, content))


def test_no_message_quotes_the_text(tmp_path: Path) -> None:
    for broken in ("<Meier>", "&Meier;", "Meier</x>", "\0Meier"):
        told = refusal(write(tmp_path, HEAD + DOG.replace("dog", broken).replace("</Meier>", "") + END))
        assert "Meier" not in told


def test_a_gzip_that_breaks_off_is_told_with_how_far_it_came(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + DOG * 20_000 + END, "memory.tmx.gz").path
    path.write_bytes(path.read_bytes()[:-20])
    assert "is it a whole gzip file?" in refusal(TmxFile(path, DE_EN))
    path.write_bytes(b"no gzip")
    assert "after unit 0: cannot be read" in refusal(TmxFile(path, DE_EN))


def test_a_long_segment_is_read_whole(tmp_path: Path) -> None:
    assert len(next(write(tmp_path, HEAD + DOG.replace("dog", "d" * 2**20) + END).read()).target) == 2**20 + 2


def test_units_that_were_given_out_leave_the_memory(tmp_path: Path) -> None:
    """The tree of what was read is cut off as it grows: at no time are there more elements than a chunk of the file makes."""
    from lxml import etree

    head = HEAD.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"')
    file = write(tmp_path, head + "<prop>x</prop>\n" + DOG * 5000 + END)
    siblings = []
    real = etree.iterparse

    def watched(*arguments: object, **options: object):  # type: ignore[no-untyped-def]
        for event, element in real(*arguments, **options):
            if element.tag.endswith("}tu"):
                siblings.append(len(element.getparent()))
            yield event, element

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etree, "iterparse", watched)
        assert list(file.read()) == [Pair("ein Hund", "a dog")] * 5000
    assert max(siblings) < 1000
