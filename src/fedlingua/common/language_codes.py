"""A model's own codes of its languages, such as zho_Hant, pt_br or ns, as BCP-47 codes; and which of them a language means.

Every code of a model has one BCP-47 code, and no two have the same. Where its language and likely script (CLDR) are another code's, a
private subtag tells it apart: of Marian's `tuk_Latn` and `tuk`, tk and tk-x-tuk.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from fedlingua.common.languages import likely_script, normal_code, parsed_tag, script_of

if TYPE_CHECKING:  # imported where it is used: most commands need no language
    from langcodes import Language

_USUAL = {"nb": "no", "pbt": "ps", "quy": "qu", "fuv": "ff"}
"""Language -> macro-language that it is the usual member of, in models; beside those of CLDR."""
_SAME = {"nn": ["no"], "fil": ["tl"], "tl": ["fil"]}
"""Language -> codes that models without its own use for it."""


def bcp47(own: Iterable[str]) -> dict[str, str]:
    """Return the BCP-47 code, in normal form, of each of a model's own codes: BCP-47 code -> own code, one to one.

    The usual member of a macro-language takes its code, unless the model has both: arb_Arab is ar, and zsm_Latn ms.
    """
    from langcodes.data_dicts import NORMALIZED_MACROLANGUAGES

    tags = {code: _tag(code) for code in own}
    present = {tag.language for tag in tags.values() if not tag.territory}
    members_of = Counter(macro for member, macro in _usual_members() if member in present)

    def parts(code: str) -> tuple[str, str | None, str | None]:
        tag = tags[code]
        language, macro = tag.language or "und", NORMALIZED_MACROLANGUAGES.get(tag.language or "")
        script = tag.script and likely_script(tag.to_tag())
        return macro if macro and macro not in present and members_of[macro] == 1 else language, script, tag.territory

    def order(code: str) -> tuple[bool, bool, str]:
        # Of two codes with one meaning, the one that names its script is clearer, and there is more text of pt_br than of pt_BR.
        language, script, territory = parts(code)
        is_likely = script is not None and script == likely_script(_joined(language, territory))
        return language != tags[code].language, not is_likely, code.swapcase()

    codes: dict[str, str] = {}
    for code in sorted(tags, key=order):
        language, script, territory = parts(code)
        whole, short = _joined(language, script, territory), _joined(language, territory)
        private = re.findall("[a-z0-9]{1,8}", code.lower())
        names = [short, whole] if script in (None, script_of(short)) else [whole]
        names = [*([] if tags[code].variants else names), _joined(language, "x", *(private[1:] or private))]
        codes[next((name for name in map(normal_code, names) if name and name not in codes), code)] = code
    return codes


def _joined(*subtags: str | None) -> str:
    return "-".join(filter(None, subtags))


def known_as(language: str, codes: Collection[str], with_scripts: bool = False) -> str | None:
    """Return which of these codes a model uses for a language, None without a clear one: see `meant`."""
    choices = meant(language, codes, with_scripts)
    return choices[0] if len(choices) == 1 else None


def meant(language: str, codes: Collection[str], with_scripts: bool = False) -> list[str]:
    """Return which of a model's BCP-47 codes a language means: one, none, or several between which only the user can choose.

    A language also goes by its macro-language's code, if it is the usual member, and the other way round: nb is no to M2M-100, and no
    is nb to NLLB. A script that is not named is the likely one, else the only one that the model has.

    Args:
        with_scripts: Whether a code without a script means the likely one alone, as if any of them names a script. To others,
            such as M2M-100, a language is the same in any script: zh-Hant is zh.
    """
    return list(_meant(language, frozenset(codes), with_scripts))


@lru_cache(maxsize=4096)
def _meant(language: str, codes: frozenset[str], with_scripts: bool) -> tuple[str, ...]:
    if language in codes:
        return (language,)
    asked = _tag(language)
    tags = {code: tag for code in codes if not (tag := _tag(code)).private and not tag.variants}
    with_scripts = with_scripts or any(tag.script for tag in tags.values())
    is_script_given = asked.script or script_of(language) != script_of(asked.language or "")
    for same in _same(asked.language or ""):
        near = [code for code, tag in tags.items() if tag.language in same and _fits(tag.territory, asked.territory)]
        fit = [code for code in near if script_of(code) == script_of(language)]
        if not fit and not (is_script_given and with_scripts):
            fit = near
        for territory in (asked.territory, None):
            fit = [code for code in fit if tags[code].territory == territory] or fit
        if fit:
            return tuple(sorted(fit))
    return ()


def _fits(territory: str | None, asked: str | None) -> bool:
    return territory is None or asked is None or territory == asked


def _same(language: str) -> list[set[str]]:
    """Return the codes that can stand for a language, best first: itself; its macro-language; that one's usual member."""
    macros = {macro for member, macro in _usual_members() if member == language}
    return [{language}, {*macros, *_SAME.get(language, ())}, {member for member, macro in _usual_members() if macro == language}]


@cache
def _usual_members() -> list[tuple[str, str]]:
    """Return each usual member of a macro-language with that."""
    from langcodes.data_dicts import NORMALIZED_MACROLANGUAGES

    return [*NORMALIZED_MACROLANGUAGES.items(), *_USUAL.items()]


def members(language: str, codes: Iterable[str]) -> list[str]:
    """Return the codes of languages that a macro-language comprises: yue and wuu for zh."""
    from langcodes.data_dicts import MACROLANGUAGES

    macro = _tag(language).language
    return sorted(code for code in codes if MACROLANGUAGES.get(_tag(code).language or "") == macro)


def _tag(code: str) -> "Language":
    """Return a code's parts; those of "und" if it is no tag."""
    tag = parsed_tag(normal_code(code) or code)
    return tag or _tag("und")
