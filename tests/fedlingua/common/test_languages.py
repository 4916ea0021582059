"""Languages and directions: what any code says of a language, and what a mistyped one is answered with."""

import subprocess
import sys
from pathlib import Path

import pytest
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50

from fedlingua.clustering.clusters import CLUSTER_NAME
from fedlingua.common import languages
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import (
    Direction,
    broader,
    is_tag,
    kinship,
    language_name,
    matching,
    nearest,
    normal_code,
    parse_direction,
    parse_language,
    parse_written,
    plain_code,
    right_to_left,
    script_of,
    without_spaces,
    written_sides,
)

KIN = {
    ("Indo-European", "Germanic"): "af da de en fy is lb nl no sv yi",
    ("Indo-European", "Romance"): "ast ca es fr gl it oc pt ro",
    ("Indo-European", "Slavic"): "be bg bs cs hr mk pl ru sk sl sr uk",
    ("Indo-European", "Baltic"): "lt lv",
    ("Indo-European", "Celtic"): "br cy ga gd",
    ("Indo-European", "Hellenic"): "el",
    ("Indo-European", "Albanian"): "sq",
    ("Indo-European", "Armenian"): "hy",
    ("Indo-European", "Indo-Aryan"): "bn gu hi mr ne or pa sd si ur",
    ("Indo-European", "Iranian"): "fa ps",
    ("Uralic", "Finnic"): "et fi",
    ("Uralic", "Ugric"): "hu",
    ("Turkic", "Turkic"): "az ba kk tr uz",
    ("Mongolic", "Mongolic"): "mn",
    ("Kartvelian", "Kartvelian"): "ka",
    ("Afro-Asiatic", "Semitic"): "am ar he",
    ("Afro-Asiatic", "Cushitic"): "so",
    ("Afro-Asiatic", "Chadic"): "ha",
    ("Sino-Tibetan", "Sinitic"): "zh",
    ("Sino-Tibetan", "Tai"): "th",
    ("Sino-Tibetan", "Burmese"): "my",
    ("Tai-Kadai", "Lao"): "lo",
    ("Japonic", "Japonic"): "ja",
    ("Koreanic", "Koreanic"): "ko",
    ("Austroasiatic", "Vietic"): "vi",
    ("Austroasiatic", "Khmeric"): "km",
    ("Austronesian", "Philippine"): "ceb ilo tl",
    ("Austronesian", "Malayic"): "id ms",
    ("Austronesian", "Javanese"): "jv",
    ("Austronesian", "Sundanese"): "su",
    ("Austronesian", "Malagasy"): "mg",
    ("Dravidian", "Dravidian"): "kn ml ta te",
    ("Niger-Congo", "Bantu"): "lg ln ns ss sw tn xh zu",
    ("Niger-Congo", "Fula"): "ff",
    ("Niger-Congo", "Wolof"): "wo",
    ("Niger-Congo", "Igboid"): "ig",
    ("Niger-Congo", "Yoruboid"): "yo",
    ("French Creole", "French Creole"): "ht",
}
"""The languages of M2M-100 and mBART-50: what was clustered so, stays so."""
OF_BACKBONES = {code for codes in KIN.values() for code in codes.split()}


def test_every_language_of_the_backbones_is_averaged_with_whom_it_always_was() -> None:
    assert {*M2M["m2m100"], *(code.split("_")[0] for code in MBART_50)} == OF_BACKBONES
    found = {code: kinship(normal_code(code) or "") for code in OF_BACKBONES}
    assert found == {code: kin for kin, codes in KIN.items() for code in codes.split()}


def test_codes_that_directions_had_stay_as_they_are() -> None:
    assert {code for code in OF_BACKBONES if normal_code(code) != code} == {"ns"}


def test_every_group_can_name_a_cluster() -> None:
    from iso_langcodes.iso639_5 import LanguageParent

    kin = {found for code in LanguageParent if (found := kinship(normal_code(code) or code))}
    assert len(kin) > 80
    assert all(CLUSTER_NAME.fullmatch(name) for found in kin for name in found)


@pytest.mark.parametrize(
    ("code", "family", "group"),
    [
        ("ckb", "Indo-European", "Iranian"),
        ("gsw", "Indo-European", "Germanic"),
        ("yue", "Sino-Tibetan", "Sinitic"),
        ("zh-Hant", "Sino-Tibetan", "Sinitic"),
        ("zh-Hans", "Sino-Tibetan", "Sinitic"),
        ("nb", "Indo-European", "Germanic"),
        ("nso", "Niger-Congo", "Bantu"),
        ("ky", "Turkic", "Turkic"),
        ("sat", "Austroasiatic", "Munda"),
        ("qu", "Quechuan", "Quechuan"),
        ("chr", "Iroquoian", "Iroquoian"),
    ],
)
def test_a_language_that_no_backbone_has_stands_in_a_family_too(code: str, family: str, group: str) -> None:
    assert kinship(code) == (family, group)


@pytest.mark.parametrize("code", ["eo", "ay", "qaa", "und", "x-ours", "nonsense"])
def test_what_is_in_no_family_has_no_kin(code: str) -> None:
    assert kinship(code) is None


@pytest.mark.parametrize(
    ("code", "script", "unspaced", "leftwards"),
    [
        ("de", "Latn", False, False),
        ("ja", "Jpan", True, False),
        ("ko", "Kore", False, False),
        ("zh", "Hans", True, False),
        ("zh-Hant", "Hant", True, False),
        ("zh-TW", "Hant", True, False),
        ("zh-Latn", "Latn", False, False),
        ("yue", "Hant", True, False),
        ("my", "Mymr", True, False),
        ("ur", "Arab", False, True),
        ("ckb", "Arab", False, True),
        ("az", "Latn", False, False),
        ("az-Arab", "Arab", False, True),
        ("", "Latn", False, False),
        ("no language", "Latn", False, False),
    ],
)
def test_the_script_says_how_a_language_is_written(code: str, script: str, unspaced: bool, leftwards: bool) -> None:
    assert (script_of(code), without_spaces(code), right_to_left(code)) == (script, unspaced, leftwards)


def test_the_backbones_languages_are_written_as_they_were_known_to_be() -> None:
    assert {code for code in OF_BACKBONES if without_spaces(code)} == {"zh", "ja", "th", "lo", "km", "my"}
    assert {code for code in OF_BACKBONES if right_to_left(code)} == {"ar", "fa", "he", "ps", "sd", "ur", "yi"}


def test_names_are_english_and_tell_the_script() -> None:
    assert [language_name(code) for code in ("de", "zh-Hant", "pt-BR")] == [
        "German",
        "Chinese (Traditional)",
        "Portuguese (Brazil)",
    ]
    assert language_name("") == ""


@pytest.mark.parametrize(
    ("text", "source", "target", "written"),
    [
        ("de-fr", "de", "fr", "de-fr"),
        ("ceb-en", "ceb", "en", "ceb-en"),
        ("zh-yue", "zh", "yue", "zh-yue"),
        ("pt-br", "pt", "br", "pt-br"),
        ("DE-fr", "de", "fr", "de-fr"),
        ("iw-in", "he", "id", "he-id"),
        ("tl-en", "tl", "en", "tl-en"),
        ("ns-en", "nso", "en", "nso-en"),
        ("zh-Hant--en", "zh-Hant", "en", "zh-Hant--en"),
        ("zh-Hant-en", "zh-Hant", "en", "zh-Hant--en"),
        ("ZH-hant-EN", "zh-Hant", "en", "zh-Hant--en"),
        ("en-zh-Hant", "en", "zh-Hant", "en--zh-Hant"),
        ("zh-Hant-zh-Hans", "zh-Hant", "zh-Hans", "zh-Hant--zh-Hans"),
        ("pt-BR-de", "pt-BR", "de", "pt-BR--de"),
        ("pt--BR-de", "pt", "br-DE", "pt--br-DE"),
        ("de-x-clinic--en", "de-x-clinic", "en", "de-x-clinic--en"),
    ],
)
def test_a_direction_reads_and_writes_itself(text: str, source: str, target: str, written: str) -> None:
    direction = parse_direction(text)
    assert direction == Direction(source, target)
    assert str(direction) == written
    assert parse_written(written) == parse_direction(written) == direction
    assert written_sides(written) == (source, target)


@pytest.mark.parametrize("text", ["", "de", "de-", "-de", "de--", "de_fr", "de fr", "zh-Hant", "pt-BR", "de-FR", "a-b-c-d"])
def test_what_is_no_two_codes_is_no_direction(text: str) -> None:
    with pytest.raises(ConfigError, match="write source-target") as caught:
        parse_direction(text, "site 3: direction")
    assert repr(text) in str(caught.value)
    assert "site 3: direction" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ways"),
    [("pt-br-de", "'pt--br-de' or 'pt-br--de'"), ("de-fr-it", "'de--fr-it' or 'de-fr--it'")],
)
def test_a_direction_with_two_readings_is_answered_with_both(text: str, ways: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}' has more than one reading; write source--target, here {ways}"):
        parse_direction(text)


@pytest.mark.parametrize(
    ("text", "unknown"), [("qq-fr", "qq"), ("fr-qq", "qq"), ("qq--fr", "qq"), ("zh-Hant--qq", "qq"), ("german-fr", "german")]
)
def test_an_unknown_language_is_named_on_either_side(text: str, unknown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_direction(text)
    assert f"{text!r}: language = {unknown!r} is not known" in str(caught.value)
    assert "wanted a BCP-47 code" in str(caught.value)


@pytest.mark.parametrize(("text", "wanted"), [("de-fra", "fr"), ("en-UK--de", "en-GB"), ("zh_TW--en", "zh-TW")])
def test_a_code_that_is_not_bcp_47s_is_answered_with_the_one_that_is(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=rf"is not known; did you mean '{wanted}'\?"):
        parse_direction(text)


@pytest.mark.parametrize("text", ["de-de", "iw-he", "de-Latn--de", "no-no"])
def test_the_same_language_twice_is_no_direction(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}' has the same language on both sides"):
        parse_direction(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("es", "es"),
        ("zh-Hant", "zh-Hant"),
        ("ZH-hant", "zh-Hant"),
        ("iw", "he"),
        ("de-Latn", "de"),
        ("sr-cyrl", "sr-Cyrl"),
        ("sh", "sr-Latn"),
    ],
)
def test_the_language_of_a_text_is_normalised_and_is_no_direction(text: str, code: str) -> None:
    language = parse_language(text)
    assert language == Direction(code, code) == parse_written(text) == parse_written(str(language))
    assert str(language) == code
    assert language.is_one_language
    assert not Direction(code, "en").is_one_language


@pytest.mark.parametrize(
    ("text", "near"), [("spa", "; did you mean 'es'?"), ("qq", ""), ("spanish", ""), ("de-fra", ""), ("", "")]
)
def test_what_is_no_code_is_no_language(text: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_language(text, "site 2: language")
    assert f"site 2: language = {text!r} is not known{near}; wanted" in str(caught.value)


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    assert nearest("round", ["seed", "rounds", "beam"]) == "; did you mean 'rounds'?"
    assert nearest("xyz", ["seed", "rounds", "beam"]) == ""


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en", "en"),
        ("en-GB", "en"),
        ("PT_br", "pt"),
        ("zh-Hant-TW", "zh"),
        ("nb-NO", "no"),
        ("iw", "he"),
        ("nso", "ns"),
        ("nso-ZA", "ns"),
        ("tlh", "tlh"),
        ("cmn", "zh"),
        ("fil", "tl"),
        ("", ""),
    ],
)
def test_a_language_tag_is_told_by_its_first_part(tag: str, code: str) -> None:
    assert plain_code(tag) == code


@pytest.mark.parametrize(
    ("language", "tags", "found"),
    [
        ("zh-Hant", ["zh-Hant-TW", "zh-Hans", "zh", "zh_tw"], ["zh-Hant-TW", "zh_tw"]),
        ("zh-Hans", ["zh-Hant-TW", "zh-CN", "zh"], ["zh-CN", "zh"]),
        ("zh", ["zh-Hant-TW"], ["zh-Hant-TW"]),
        ("en", ["en-GB", "de"], ["en-GB"]),
        ("en", ["en-GB", "EN", "de"], ["EN"]),
        ("en-GB", ["en", "en-US", "en-gb"], ["en-gb"]),
        ("en-GB", ["en", "en-US"], []),
        ("he", ["iw"], ["iw"]),
        ("no", ["nb-NO"], ["nb-NO"]),
        ("nb", ["no"], []),
        ("sr-Latn", ["sr", "sh"], ["sh"]),
        ("tl", ["fil"], ["fil"]),
        ("tl", ["fil", "tl"], ["tl"]),
        ("de", ["", "no tag", "DEU"], ["DEU"]),
    ],
)
def test_a_tag_means_a_language_when_it_says_as_much_or_more(language: str, tags: list[str], found: list[str]) -> None:
    assert matching(language, tags) == found


def test_only_a_valid_tag_is_one_in_whatever_spelling() -> None:
    assert all(map(is_tag, ["de", "iw", "deu", "zh_cn", "en_US", "zh-TW", "en-UK", "eng_Latn", "fra-FR", "de-x-mt"]))
    assert not any(map(is_tag, ["", "de_tok", "de_bpe", "de-old", "de-test", "en-orig", "en-2019", "de~", "a.de"]))


def test_a_code_is_followed_by_its_broader_ones() -> None:
    assert list(broader("zh-Hant-TW")) == ["zh-Hant-TW", "zh-Hant", "zh"]


def test_who_asks_for_no_language_loads_no_table() -> None:
    heavy = "print([name for name in sys.modules if name.split('.')[0] in ('langcodes', 'language_data', 'iso_langcodes')])"
    env = {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    for command in ("import fedlingua.desk.cli.app", "import fedlingua.common.languages, fedlingua.corpora.sites"):
        program = [sys.executable, "-c", f"import sys; {command}; {heavy}"]
        run = subprocess.run(program, capture_output=True, text=True, env=env)
        assert run.stdout.strip() == "[]", run.stderr


def test_a_long_text_is_no_code_at_once_and_is_not_remembered() -> None:
    languages._normal_code.cache_clear()
    for text in ("-" * 200_000, "a-" * 100_000, "de--" + "f" * 200_000):
        assert normal_code(text) is None
        with pytest.raises(ConfigError):
            parse_written(text)
    assert languages._normal_code.cache_info().currsize <= 1  # de
