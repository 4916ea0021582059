"""Languages by their BCP-47 codes (RFC 5646), translation directions, and which languages are related.

`langcodes` parses and normalises codes by IANA's registry and Unicode CLDR, which also gives names and scripts. Groups and families are
the collections of ISO 639-5, from `iso-langcodes`, by their common names. `_GROUPS` and `_FAMILIES` add what ISO 639-5 lacks, and an
exception from the paper: Liu et al. 2023, table 6, has Thai with Chinese under Sino-Tibetan. A federation file can define its own
families (`[families]`), which take precedence.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from fedlingua.common.errors import ConfigError

if TYPE_CHECKING:  # imported where it is used: most commands need no language
    from langcodes import Language


def _table(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+) ([^,]+)", text))


_GROUPS = _table(
    "roa Romance, grk Hellenic, inc Indo-Aryan, ira Iranian, et Finnic, fi Finnic, hu Ugric, xgn Mongolic, ccs Kartvelian, "
    "zh Sinitic, zhx Sinitic, tai Tai, lo Lao, my Burmese, jpx Japonic, ko Koreanic, vi Vietic, km Khmeric, phi Philippine, "
    "tl Philippine, id Malayic, ms Malayic, jv Javanese, su Sundanese, mg Malagasy, bnt Bantu, ff Fula, wo Wolof, ig Igboid, "
    "yo Yoruboid, ht French Creole"
)
"""Collection of ISO 639-5, or language without a close collection -> group. Others: name of the collection below the family."""
_FAMILIES = _table(
    "aav Austroasiatic, nic Niger-Congo, xgn Mongolic, ccs Kartvelian, tai Tai-Kadai, th Sino-Tibetan, jpx Japonic, ko Koreanic, "
    "ht French Creole"
)
"""Collection or language -> family. Others: name of the outermost collection."""
_NO_FAMILIES = frozenset(["art", "aus", "cai", "cau", "crp", "khi", "mul", "nai", "paa", "sai", "sgn", "tut"])
"""Collections by area or kind, or of languages that are not generally held to be related: these do not count as families."""
_ALIKE = {"nb": "no", "nn": "no", "fil": "tl", "nso": "ns"}
"""Code -> the different code of M2M-100 and mBART-50: Norwegian's two written forms, Filipino, Northern Sotho."""
_LONGEST = 64
"""Upper bound of a code's characters: files can hold any text, and langcodes caches every code."""
_WITHOUT_SPACES = frozenset(["Hanb", "Hani", "Hans", "Hant", "Hira", "Hrkt", "Jpan", "Kana", "Khmr", "Laoo", "Mymr", "Thai"])
_RIGHT_TO_LEFT = frozenset(["Adlm", "Arab", "Aran", "Hebr", "Mand", "Nkoo", "Rohg", "Samr", "Syrc", "Thaa"])


@dataclass(frozen=True, order=True)
class Direction:
    """A translation direction, written `de-fr`, or `zh-Hant--en` where a code has a hyphen. Text in one language, which is not
    translated, has that language on both sides, written `de`."""

    source: str
    target: str

    def __str__(self) -> str:
        if self.is_one_language:
            return self.source
        return f"{self.source}{'--' if '-' in self.source + self.target else '-'}{self.target}"

    @property
    def is_one_language(self) -> bool:
        """Whether this is the language of a text, not a translation direction."""
        return self.source == self.target

    @property
    def sides(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.source, self.target

    @property
    def reverse(self) -> "Direction":
        """The direction from target to source."""
        return Direction(self.target, self.source)


def parse_direction(text: str, where: str = "direction") -> Direction:
    """Parse `de-fr`, `zh-Hant--en`, or `zh-Hant-en`, which can be read in one way only; normalise codes as `parse_language`.

    Raises:
        ConfigError: not two codes, no valid BCP-47 code, the same code twice, or a text that can be read in several ways.
    """
    ways = _readings(text) or [text.split("--" if "--" in text else "-")]
    if len(ways) > 1:
        choices = " or ".join(repr("--".join(way)) for way in ways)
        raise ConfigError(f"{where} = {text!r} has more than one reading; write source--target, here {choices}")
    if len(ways[0]) != 2 or not all(ways[0]) or normal_code(text) == text:
        how = "write source-target, for example 'de-fr', or source--target where a code has a hyphen, for example 'zh-Hant--en'"
        raise ConfigError(f"{where} = {text!r} is not a direction; {how}")
    source, target = (parse_language(code, f"{where} = {text!r}: language").source for code in ways[0])
    if source == target:
        raise ConfigError(f"{where} = {text!r} has the same language on both sides; give two languages")
    return Direction(source, target)


def parse_language(text: str, where: str = "language") -> Direction:
    """Parse `de` or `zh-Hant`, the language of text that is not translated.

    Codes are normalised: ZH-hant to zh-Hant, the deprecated iw to he, and without the language's usual script: de-Latn to de.

    Raises:
        ConfigError: the text is no valid BCP-47 code.
    """
    if code := normal_code(text):
        return Direction(code, code)
    tag = parsed_tag(text)
    near = f"; did you mean {tag.to_tag()!r}?" if tag and normal_code(tag.to_tag()) else ""
    raise ConfigError(f"{where} = {text!r} is not known{near}; wanted a BCP-47 code, such as 'de', 'ceb' or 'zh-Hant'")


@lru_cache(maxsize=4096)
def parse_written(text: str) -> Direction:
    """Parse a direction or one language, as `str` of a Direction or a person writes it; raise ConfigError for other text."""
    of_two = _readings(text) or re.fullmatch("[a-z]{2,3}-[a-z]{2,3}", text) or ("-" in text and not normal_code(text))
    return parse_direction(text) if of_two else parse_language(text)


def written_sides(direction: str) -> tuple[str, str]:
    """Return source and target of a direction as `str` writes it."""
    source, _, target = direction.partition("--" if "--" in direction else "-")
    return source, target


def _readings(text: str) -> list[list[str]]:
    """Return all ways to split a text into two valid codes; none if it is too long for two, or one code in normal form, such as zh-Hant
    (de-fr is not: the country is FR). Of several ways, only those in normal form, if any: pt-BR-de is not pt into br-DE.
    """
    if len(text) > 2 * _LONGEST or normal_code(text) == text:
        return []
    subtags = text.split("-")
    ways = [["-".join(subtags[:place]), "-".join(subtags[place:])] for place in range(1, len(subtags))]
    valid = [way for way in ([text.split("--")] if "--" in text else ways) if len(way) == 2 and all(map(normal_code, way))]
    return [way for way in valid if [*map(normal_code, way)] == way] or valid


def normal_code(text: str) -> str | None:
    """Return a valid BCP-47 code in its normal form, None for any other text. M2M-100's own `ns` becomes nso."""
    return _normal_code(text) if len(text) < _LONGEST else None  # nothing long is remembered


@lru_cache(maxsize=4096)
def _normal_code(text: str) -> str | None:
    tag = parsed_tag("nso" if text == "ns" else text, normalize=False)
    if tag is None or not tag.is_valid() or not re.fullmatch("[A-Za-z0-9-]+", text):
        return None
    # CLDR replaces tl by fil; IANA's registry has both.
    normal = tag if tag.language == "tl" else parsed_tag(tag.to_tag()) or tag
    return None if normal.extlangs else str(normal.simplify_script().to_tag())


def parsed_tag(text: str, normalize: bool = True) -> "Language | None":
    """Return a tag's parts, None for text that is no tag."""
    from langcodes import Language

    try:
        return Language.get(text, normalize) if 0 < len(text) < _LONGEST else None
    except ValueError:  # includes LanguageTagError
        return None


@lru_cache(maxsize=4096)
def plain_code(tag: str) -> str:
    """Return a tag's language without country and script, as M2M-100 and mBART-50 write it: en-GB, EN_us and en give "en"."""
    parsed = parsed_tag(tag)
    language = (parsed and parsed.prefer_macrolanguage().language) or tag.strip().lower()
    return _ALIKE.get(language, language)


def broader(code: str) -> Iterator[str]:
    """Yield a code and its more general codes: zh-Hant-TW, zh-Hant, zh (lookup of RFC 4647)."""
    while code:
        yield code
        code = code.rpartition("-")[0]


def matching(language: str, tags: Iterable[str]) -> list[str]:
    """Return the tags of exactly this code, else more specific ones: zh-TW for zh-Hant, en-GB for en; not en for en-GB."""
    meant = [tag for tag in tags if _means(tag, language)]
    return [tag for tag in meant if normal_code(tag.replace("_", "-")) == language] or meant


def is_tag(text: str) -> bool:
    """Return whether a text is a valid tag: en-GB, also written en_GB or eng-GB; but not de_tok or en-orig, which only look like one."""
    tag = parsed_tag(text)
    return tag is not None and normal_code(tag.to_tag()) is not None


@lru_cache(maxsize=4096)
def _means(tag: str, language: str) -> bool:
    has, wanted = parsed_tag(tag), parsed_tag(language, normalize=False)
    if has is None or wanted is None or wanted.language not in (has.language, plain_code(tag), tag):
        return False
    said = (has.maximize().script, has.territory, has.variants, has.private)
    asked = (wanted.script, wanted.territory, wanted.variants, wanted.private)
    return all(each in (None, own) for each, own in zip(asked, said, strict=True))


@cache
def script_of(language: str) -> str:
    """Return the ISO 15924 code of a language's script, the likeliest if its code names none: Cyrl for ru, Hant for zh-TW."""
    return likely_script(language) or "Latn"


def likely_script(language: str) -> str | None:
    """Return the script that a code names or CLDR gives it, if need be by its macro-language: Arab for acm; None if neither is there."""
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    tag = parsed_tag(language)
    if tag is None:
        return None
    if tag.script:
        return "Kore" if (tag.language, tag.script) == ("ko", "Hang") else tag.script
    if tag.language in LIKELY_SUBTAGS:
        return tag.maximize().script
    macro = MACROLANGUAGES.get(tag.language or "")
    return macro and likely_script("-".join(filter(None, (macro, tag.territory))))


def without_spaces(language: str) -> bool:
    """Return whether a language is written without spaces between words, so that lengths are counted in characters."""
    return script_of(language) in _WITHOUT_SPACES


def right_to_left(language: str) -> bool:
    """Return whether a language is written from right to left."""
    return script_of(language) in _RIGHT_TO_LEFT


def language_name(code: str, written_in: str = "en") -> str:
    """Return the name by CLDR, in English or another language: German, Chinese (Traditional)."""
    tag = parsed_tag(code, normalize=False)
    return str(tag.display_name(written_in)) if tag else code


@cache
def kinship(language: str) -> tuple[str, str] | None:
    """Return the family of a language and its group within the family; None if no table has the language."""
    from iso_langcodes.iso639_3 import get_iso639_3, get_language_name
    from iso_langcodes.iso639_5 import language_parent

    tag, lineage = parsed_tag(language), [plain_code(language)]
    collection = get_iso639_3((tag and tag.language) or "")
    while (collection := language_parent(collection)) and collection not in _NO_FAMILIES:
        lineage.append(collection)

    def name(table: dict[str, str], others: list[str]) -> str:
        known = [table[each] for each in lineage if each in table]
        return (known or [re.sub(" languages$| \\(family\\)$", "", get_language_name(each)) for each in others])[0]

    if len(lineage) == 1 and lineage[0] not in _GROUPS:
        return None
    return name(_FAMILIES, lineage[-1:]), name(_GROUPS, lineage[1:][-2:])


def near_keys(name: str, known: Iterable[str], most: int = 5) -> str:
    """Return words for an error message: the known keys nearest to a mistyped one; all keys if there are at most `most`."""
    keys = sorted(known)
    if len(keys) > most:
        keys = difflib.get_close_matches(name, keys, n=most, cutoff=0.0)
    return f"{nearest(name, keys)}; {'nearest' if len(keys) == most else 'known'}: {', '.join(keys)}"


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for an error message, or nothing when no choice is near."""
    names = list(choices)
    matches = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""
