"""Languages, directions, and which languages are related.

Families and groups go by their common names, close to Glottolog's, with one exception that is the paper's own: Liu et al. 2023, table 6,
puts Thai with Chinese under Sino-Tibetan. A federation file can give families of its own (`[families]`), which go before these.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from fedlingua.errors import ConfigError


@dataclass(frozen=True)
class Language:
    """One language: ISO 639 code as M2M-100 writes it, English name, family, and the closer group inside the family."""

    code: str
    name: str
    family: str
    group: str


_GROUPS = {
    ("Indo-European", "Germanic"): "af Afrikaans, da Danish, de German, en English, fy Frisian, is Icelandic, "
    "lb Luxembourgish, nl Dutch, no Norwegian, sv Swedish, yi Yiddish",
    ("Indo-European", "Romance"): "ast Asturian, ca Catalan, es Spanish, fr French, gl Galician, it Italian, "
    "oc Occitan, pt Portuguese, ro Romanian",
    ("Indo-European", "Slavic"): "be Belarusian, bg Bulgarian, bs Bosnian, cs Czech, hr Croatian, mk Macedonian, "
    "pl Polish, ru Russian, sk Slovak, sl Slovene, sr Serbian, uk Ukrainian",
    ("Indo-European", "Baltic"): "lt Lithuanian, lv Latvian",
    ("Indo-European", "Celtic"): "br Breton, cy Welsh, ga Irish, gd Gaelic",
    ("Indo-European", "Hellenic"): "el Greek",
    ("Indo-European", "Albanian"): "sq Albanian",
    ("Indo-European", "Armenian"): "hy Armenian",
    ("Indo-European", "Indo-Aryan"): "bn Bengali, gu Gujarati, hi Hindi, mr Marathi, ne Nepali, or Oriya, "
    "pa Panjabi, sd Sindhi, si Sinhala, ur Urdu",
    ("Indo-European", "Iranian"): "fa Persian, ps Pashto",
    ("Uralic", "Finnic"): "et Estonian, fi Finnish",
    ("Uralic", "Ugric"): "hu Hungarian",
    ("Turkic", "Turkic"): "az Azerbaijani, ba Bashkir, kk Kazakh, tr Turkish, uz Uzbek",
    ("Mongolic", "Mongolic"): "mn Mongolian",
    ("Kartvelian", "Kartvelian"): "ka Georgian",
    ("Afro-Asiatic", "Semitic"): "am Amharic, ar Arabic, he Hebrew",
    ("Afro-Asiatic", "Cushitic"): "so Somali",
    ("Afro-Asiatic", "Chadic"): "ha Hausa",
    ("Sino-Tibetan", "Sinitic"): "zh Chinese",
    ("Sino-Tibetan", "Tai"): "th Thai",
    ("Sino-Tibetan", "Burmese"): "my Burmese",
    ("Tai-Kadai", "Lao"): "lo Lao",
    ("Japonic", "Japonic"): "ja Japanese",
    ("Koreanic", "Koreanic"): "ko Korean",
    ("Austroasiatic", "Vietic"): "vi Vietnamese",
    ("Austroasiatic", "Khmeric"): "km Khmer",
    ("Austronesian", "Philippine"): "ceb Cebuano, ilo Iloko, tl Tagalog",
    ("Austronesian", "Malayic"): "id Indonesian, ms Malay",
    ("Austronesian", "Javanese"): "jv Javanese",
    ("Austronesian", "Sundanese"): "su Sundanese",
    ("Austronesian", "Malagasy"): "mg Malagasy",
    ("Dravidian", "Dravidian"): "kn Kannada, ml Malayalam, ta Tamil, te Telugu",
    ("Niger-Congo", "Bantu"): "lg Ganda, ln Lingala, ns Northern Sotho, ss Swati, sw Swahili, tn Tswana, xh Xhosa, zu Zulu",
    ("Niger-Congo", "Fula"): "ff Fulah",
    ("Niger-Congo", "Wolof"): "wo Wolof",
    ("Niger-Congo", "Igboid"): "ig Igbo",
    ("Niger-Congo", "Yoruboid"): "yo Yoruba",
    ("French Creole", "French Creole"): "ht Haitian Creole",
}

LANGUAGES: dict[str, Language] = {
    code: Language(code, name, family, group)
    for (family, group), members in _GROUPS.items()
    for code, name in (member.split(" ", 1) for member in members.split(", "))
}

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Languages written without spaces between words: lengths are counted in characters."""

RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ps", "sd", "ur", "yi"})
"""Languages written from right to left."""


_OTHER_CODES = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "ji": "yi", "fil": "tl", "cmn": "zh", "mo": "ro", "nso": "ns"}
"""Codes that mean a language above: Norwegian's two written forms, ISO 639's older codes, and Chinese, Filipino
and Northern Sotho by their own."""


def plain_code(tag: str) -> str:
    """A language tag without country and script, as `LANGUAGES` has it: en-GB, EN_us and en are "en"."""
    code = tag.strip().replace("_", "-").partition("-")[0].lower()
    return _OTHER_CODES.get(code, code)


@dataclass(frozen=True, order=True)
class Direction:
    """A translation direction, written `de-fr`; text in one language, which is not translated, has it on both sides, written `de`."""

    source: str
    target: str

    def __str__(self) -> str:
        return self.source if self.is_one_language else f"{self.source}-{self.target}"

    @property
    def is_one_language(self) -> bool:
        """Whether this is no direction of translation, but the language of a text."""
        return self.source == self.target

    @property
    def reverse(self) -> "Direction":
        """The other way round."""
        return Direction(self.target, self.source)


def parse_direction(text: str, where: str = "direction") -> Direction:
    """Read `de-fr`; refuse an unknown language with the nearest known one.

    Raises:
        ConfigError: not two codes joined by a hyphen, or a code that is not in `LANGUAGES`.
    """
    parts = text.split("-")
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"{where} = {text!r} is no direction; write source-target, for example 'de-fr'")
    for code in parts:
        _check_language(code, f"{where} = {text!r}: language {code!r}")
    if parts[0] == parts[1]:
        raise ConfigError(f"{where} = {text!r} has the same language on both sides; give two languages")
    return Direction(parts[0], parts[1])


def parse_language(text: str, where: str = "language") -> Direction:
    """Read `de`, the language of text that is not translated.

    Raises:
        ConfigError: a code that is not in `LANGUAGES`.
    """
    _check_language(text, f"{where} = {text!r}")
    return Direction(text, text)


def parse_written(text: str) -> Direction:
    """What `str` of a direction or of one language gave.

    Raises:
        ConfigError: neither.
    """
    return parse_direction(text) if "-" in text else parse_language(text)


def _check_language(code: str, what: str) -> None:
    if code not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise ConfigError(f"{what} is not known{nearest(code, LANGUAGES)}; known: {known}")


def nearest(name: str, choices: Iterable[str]) -> str:
    """`; did you mean 'x'?` for an error message, or nothing when no choice is near."""
    names = list(choices)
    found = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""
