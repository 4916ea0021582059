"""The endings of Polish, Czech and Slovene nouns, adjectives, determiners and past participles."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from . import abstract, lexicon

Case = Literal["nominative", "accusative", "genitive"]


@dataclass(frozen=True)
class Agreement:
    """The number and gender that words agree with: v men (Polish), a animate, i inanimate masculine, f feminine, n neuter."""

    gender: str
    plural: bool


# Singular and plural; genders in the order v a i f n, each as nominative, accusative, genitive.
# Czech and Slovene have no v; Czech needs no genitive here.
_GENDERS = "vaifn"
_DETERMINERS = {
    "pl": {
        "this": (
            "ten tego tego|ten tego tego|ten ten tego|ta tę tej|to to tego",
            "ci tych tych|te te tych|te te tych|te te tych|te te tych",
        ),
        "my": (
            "mój mojego mojego|mój mojego mojego|mój mój mojego|moja moją mojej|moje moje mojego",
            "moi moich moich|moje moje moich|moje moje moich|moje moje moich|moje moje moich",
        ),
    },
    "cs": {
        "this": (
            "|tento tohoto|tento tento|tato tuto|toto toto",
            "|tito tyto|tyto tyto|tyto tyto|tato tato",
        ),
        "my": (
            "|můj mého|můj můj|moje moji|moje moje",
            "|moji moje|moje moje|moje moje|moje moje",
        ),
    },
    "sl": {
        "this": (
            "|ta tega tega|ta ta tega|ta to te|to to tega",
            "|ti te teh|ti te teh|te te teh|ta ta teh",
        ),
        "my": (
            "|moj mojega mojega|moj moj mojega|moja mojo moje|moje moje mojega",
            "|moji moje mojih|moji moje mojih|moje moje mojih|moja moja mojih",
        ),
    },
}
_CASES: tuple[Case, ...] = ("nominative", "accusative", "genitive")


def agreement(language: str, key: str, plural: bool) -> Agreement:
    """Return the gender and number that other words take from a noun."""
    genders = lexicon.words(language, "nouns")[key][0].split("/")
    return Agreement(genders[-1] if plural else genders[0], plural)


def determiner(language: str, said: abstract.Determiner, agrees: Agreement, case: Case) -> str:
    """Return "this" or "my" in its form; empty for "the" and "a", which these languages leave out."""
    if said in ("the", "a"):
        return ""
    row = _DETERMINERS[language][said][int(agrees.plural)].split("|")
    return row[_GENDERS.index(agrees.gender)].split()[_CASES.index(case)]


def noun(language: str, key: str, plural: bool, case: Case) -> str:
    """Return a noun in its form."""
    return _noun_forms(language, key)[plural][_CASES.index(case)]


@cache
def _noun_forms(language: str, key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    genders, *forms = lexicon.words(language, "nouns")[key]
    gender = genders[0]
    if language == "pl":
        return _polish_noun(gender, forms)
    if language == "cs":
        return _czech_noun(gender, forms)
    return _slovene_noun(gender, forms)


def _polish_noun(gender: str, forms: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if len(forms) == 2:
        nominative, plural_genitive = forms
        stem = nominative[:-1]
        if gender == "n":
            plural = stem + "a"
            return _rows(nominative, nominative, plural, plural, plural, plural_genitive)
        genitive = stem + ("i" if stem.endswith(("k", "g")) else "y")
        return _rows(nominative, stem + "ę", genitive, genitive, genitive, plural_genitive)
    nominative, genitive, *accusative, plural, plural_genitive = forms
    singular = accusative[0] if accusative else genitive if gender in "va" else nominative
    plural_accusative = plural_genitive if gender == "v" else plural
    return _rows(nominative, singular, genitive, plural, plural_accusative, plural_genitive)


def _czech_noun(gender: str, forms: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the forms without genitives, which no Czech construction here needs."""
    if gender == "a":
        return (forms[0], forms[1]), (forms[2], forms[3])
    if len(forms) == 3:
        return (forms[0], forms[1]), (forms[2], forms[2])
    if len(forms) == 2:
        return (forms[0], forms[0]), (forms[1], forms[1])
    nominative, stem = forms[0], forms[0][:-1]
    if gender == "n":
        return (nominative, nominative), (stem + "a", stem + "a")
    return (nominative, stem + "u"), (stem + "y", stem + "y")


def _slovene_noun(gender: str, forms: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    nominative = forms[0]
    if gender in "ai" and len(forms) == 5:
        _, genitive, plural, plural_accusative, plural_genitive = forms
        singular = genitive if gender == "a" else nominative
        return _rows(nominative, singular, genitive, plural, plural_accusative, plural_genitive)
    if gender in "ai":
        stem = forms[1][:-1] if len(forms) == 2 else nominative
        singular = stem + "a" if gender == "a" else nominative
        plural_genitive = stem + ("ev" if stem.endswith(tuple("cčšžj")) else "ov")
        return _rows(nominative, singular, stem + "a", stem + "i", stem + "e", plural_genitive)
    stem = nominative[:-1]
    if gender == "f":
        return _rows(nominative, stem + "o", stem + "e", stem + "e", stem + "e", forms[1])
    if len(forms) == 4:
        _, genitive, plural, plural_genitive = forms
        return _rows(nominative, nominative, genitive, plural, plural, plural_genitive)
    return _rows(nominative, nominative, stem + "a", stem + "a", stem + "a", forms[1])


def _rows(*forms: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split six forms into a row of the singular and a row of the plural."""
    return forms[:3], forms[3:]


def adjective(language: str, key: str, agrees: Agreement, case: Case, definite: bool) -> str:
    """Return an adjective in its form; only in Slovene does `definite` matter."""
    forms = lexicon.words(language, "adjectives")[key]
    if language == "pl":
        return _polish_adjective(forms, agrees, case)
    if language == "cs":
        return _czech_adjective(forms, agrees, case)
    return _slovene_adjective(forms, agrees, case, definite)


def _polish_adjective(forms: tuple[str, ...], agrees: Agreement, case: Case) -> str:
    masculine, virile = forms
    stem = masculine[:-1]
    soft = stem + "i" if masculine.endswith("i") else stem
    if agrees.plural:
        if case == "genitive" or (case == "accusative" and agrees.gender == "v"):
            return masculine + "ch"
        return virile if agrees.gender == "v" else soft + "e"
    if agrees.gender == "f":
        return {"nominative": stem + "a", "accusative": stem + "ą", "genitive": soft + "ej"}[case]
    if case == "genitive" or (case == "accusative" and agrees.gender in "va"):
        return soft + "ego"
    return soft + "e" if agrees.gender == "n" else masculine


def _czech_adjective(forms: tuple[str, ...], agrees: Agreement, case: Case) -> str:
    masculine = forms[0]
    animate_accusative = case == "accusative" and agrees.gender == "a"
    if masculine.endswith("í"):
        return masculine + "ho" if animate_accusative and not agrees.plural else masculine
    stem = masculine[:-1]
    if agrees.plural:
        if agrees.gender == "n":
            return stem + "á"
        return forms[1] if agrees.gender == "a" and case == "nominative" else stem + "é"
    if agrees.gender == "f":
        return stem + ("á" if case == "nominative" else "ou")
    if agrees.gender == "n":
        return stem + "é"
    return stem + "ého" if animate_accusative else masculine


def _slovene_adjective(
    forms: tuple[str, ...],
    agrees: Agreement,
    case: Case,
    definite: bool,
) -> str:
    stem = forms[-1]
    gender = "m" if agrees.gender in "ai" else agrees.gender
    if agrees.plural:
        if case == "genitive":
            return stem + "ih"
        return stem + {"m": "i" if case == "nominative" else "e", "f": "e", "n": "a"}[gender]
    if gender == "f":
        return stem + {"nominative": "a", "accusative": "o", "genitive": "e"}[case]
    if case == "genitive" or (case == "accusative" and agrees.gender == "a"):
        return stem + "ega"
    if gender == "n":
        return stem + ("e" if stem.endswith(tuple("cčšžj")) else "o")
    return stem + "i" if definite else forms[0]


def past(language: str, participles: tuple[str, ...], agrees: Agreement) -> str:
    """Return the past participle in agreement with the subject."""
    masculine = participles[0]
    if language == "cs":
        endings = {"a": "i", "i": "y", "f": "y", "n": "a"}
        single = {"a": "", "i": "", "f": "a", "n": "o"}
        return masculine + (endings if agrees.plural else single)[agrees.gender]
    feminine = participles[1]
    stem = feminine[:-1]
    if language == "pl":
        if agrees.plural:
            return participles[2] if agrees.gender == "v" else stem + "y"
        return {"f": feminine, "n": stem + "o"}.get(agrees.gender, masculine)
    if agrees.plural:
        return stem + {"f": "e", "n": "a"}.get(agrees.gender, "i")
    return {"f": feminine, "n": stem + "o"}.get(agrees.gender, masculine)
