"""French, Spanish and Italian: adjectives after the noun, articles that elide and contract."""

import unicodedata

from . import abstract, lexicon
from .orthography import join, sentence

_MUST = {
    "fr": ("dois", "doit", "devons", "doivent"),
    "es": ("debo", "debe", "debemos", "deben"),
    "it": ("devo", "deve", "dobbiamo", "devono"),
}
_SAY = {"fr": ("dit", "disent"), "es": ("dice", "dicen"), "it": ("dice", "dicono")}
_THAT = {"fr": "que", "es": "que", "it": "che"}
_HAVE = {"fr": ("ai", "a", "avons", "ont"), "it": ("ho", "ha", "abbiamo", "hanno")}

# Singular and plural of "is" and "was"; Spanish twice, for ser and estar.
_BE = {
    "fr": {"present": ("est", "sont"), "past": ("était", "étaient")},
    "it": {"present": ("è", "sono"), "past": ("era", "erano")},
    "ser": {"present": ("es", "son"), "past": ("era", "eran")},
    "estar": {"present": ("está", "están"), "past": ("estaba", "estaban")},
}
_THERE = {
    "fr": {"present": ("il y a", "il y a"), "past": ("il y avait", "il y avait")},
    "es": {"present": ("hay", "hay"), "past": ("había", "había")},
    "it": {"present": ("c'è", "ci sono"), "past": ("c'era", "c'erano")},
}
_PLEASE = {"fr": "veuillez", "es": "se ruega", "it": "si prega di"}

# Forms for masculine, feminine, masculine plural, feminine plural.
_DETERMINERS = {
    "fr": {
        "the": ("le", "la", "les", "les"),
        "this": ("ce", "cette", "ces", "ces"),
        "my": ("mon", "ma", "mes", "mes"),
        "a": ("un", "une", "des", "des"),
    },
    "es": {
        "the": ("el", "la", "los", "las"),
        "this": ("este", "esta", "estos", "estas"),
        "my": ("mi", "mi", "mis", "mis"),
        "a": ("un", "una", "", ""),
    },
    "it": {
        "the": ("il", "la", "i", "le"),
        "this": ("questo", "questa", "questi", "queste"),
        "my": ("il mio", "la mia", "i miei", "le mie"),
        "a": ("un", "una", "", ""),
    },
}
_FRENCH_BEFORE_VOWEL = {"le": "l'", "la": "l'", "ce": "cet", "ma": "mon", "ne": "n'", "je": "j'"}
_ITALIAN_BEFORE_VOWEL = {
    "il": "l'",
    "la": "l'",
    "i": "gli",
    "una": "un'",
    "questo": "quest'",
    "questa": "quest'",
}
# All beginnings that change the article: z, gn, ps, and s before the consonants of the lexicon.
_ITALIAN_IMPURE = ("z", "gn", "ps", "sc", "sp", "st")
_ITALIAN_BEFORE_IMPURE = {"il": "lo", "i": "gli", "un": "uno"}


def linearise(language: str, said: abstract.Sentence) -> str:
    """Return the sentence of a Romance language for an abstract sentence."""
    match said:
        case abstract.Statement(clause, time):
            return sentence(_time(language, time), _clause(language, clause))
        case abstract.Question(clause):
            return _question(language, clause)
        case abstract.Quality():
            return _quality(language, said)
        case abstract.Existence():
            there = _THERE[language][said.tense][int(said.subject.plural)]
            place = lexicon.phrase(language, "places", said.place)
            return sentence(there, _noun_phrase(language, said.subject), place)
        case abstract.Request(verb, thing, place):
            return sentence(
                _PLEASE[language],
                _infinitive(language, verb),
                _object(language, verb, thing),
                lexicon.phrase(language, "places", place),
            )
        case abstract.Duty(subject, verb, thing, time, place):
            must = _MUST[language][_person(subject)]
            return sentence(
                _time(language, time),
                _with_subject(language, subject, must),
                _infinitive(language, verb),
                _object(language, verb, thing),
                lexicon.phrase(language, "places", place),
            )
        case abstract.Report(speaker, clause):
            say = _SAY[language][int(speaker.plural)]
            head = join(_noun_phrase(language, speaker), say, _THAT[language])
            return sentence(head, _clause(language, clause))


def _clause(language: str, clause: abstract.Clause) -> str:
    return join(
        _with_subject(language, clause.subject, _clause_verb(language, clause)),
        _object(language, clause.verb, clause.object),
        lexicon.phrase(language, "places", clause.place),
    )


def _question(language: str, clause: abstract.Clause) -> str:
    if language == "es":
        assert isinstance(clause.subject, abstract.NounPhrase)
        return sentence(
            _clause_verb(language, clause),
            _noun_phrase(language, clause.subject),
            _object(language, clause.verb, clause.object),
            lexicon.phrase(language, "places", clause.place),
            opening="¿",
            mark="?",
        )
    opening = "est-ce que" if language == "fr" else ""
    return sentence(opening, _clause(language, clause), mark="?")


def _quality(language: str, said: abstract.Quality) -> str:
    copula = language
    if language == "es":
        copula = "estar" if said.adjective in lexicon.names("es", "passing") else "ser"
    verb = _BE[copula][said.tense][int(said.subject.plural)]
    subject = _noun_phrase(language, said.subject)
    adjective = _adjective(language, said.adjective, _form(language, said.subject))
    if said.force == "ask":
        if language == "es":
            return sentence(verb, adjective, subject, opening="¿", mark="?")
        opening = "est-ce que" if language == "fr" else ""
        return sentence(opening, subject, verb, adjective, mark="?")
    if said.force == "deny":
        verb = _negated(language, verb)
    return sentence(subject, verb, adjective)


def _time(language: str, time: str | None) -> str:
    text = lexicon.phrase(language, "times", time)
    return text + "," if text and language == "fr" else text


def _person(subject: abstract.NounPhrase | abstract.Pronoun) -> int:
    if isinstance(subject, abstract.NounPhrase):
        return 3 if subject.plural else 1
    return 0 if subject == "I" else 2


def _with_subject(language: str, subject: abstract.NounPhrase | abstract.Pronoun, verb: str) -> str:
    """Return the verb after its subject; Spanish and Italian leave a pronoun out."""
    if isinstance(subject, abstract.NounPhrase):
        return join(_noun_phrase(language, subject), verb)
    if language != "fr":
        return verb
    return _french_joined("je", verb) if subject == "I" else join("nous", verb)


def _clause_verb(language: str, clause: abstract.Clause) -> str:
    person = _person(clause.subject)
    verb = _verb(language, clause.verb)
    if clause.tense == "present":
        finite, rest = verb[person], ""
    elif language == "es":
        finite, rest = verb[4 + person], ""
    else:
        finite, rest = _HAVE[language][person], verb[5]
    if clause.negative:
        finite = _negated(language, finite)
    return join(finite, rest)


def _negated(language: str, finite: str) -> str:
    if language == "fr":
        return join(_french_joined("ne", finite), "pas")
    return join("no" if language == "es" else "non", finite)


def _infinitive(language: str, key: str) -> str:
    return _verb(language, key)[8 if language == "es" else 4]


def _verb(language: str, key: str) -> tuple[str, ...]:
    forms = lexicon.words(language, "verbs")[key]
    if len(forms) > 1:
        return forms
    infinitive = forms[0]
    if language == "fr":
        stem = infinitive.removesuffix("er")
        soft = stem + "e" if stem.endswith("g") else stem
        return stem + "e", stem + "e", soft + "ons", stem + "ent", infinitive, stem + "é"
    if language == "es":
        stem = infinitive.removesuffix("ar")
        before_e = stem
        for hard, soft in (("c", "qu"), ("g", "gu"), ("z", "c")):
            if stem.endswith(hard):
                before_e = stem.removesuffix(hard) + soft
        present = (stem + "o", stem + "a", stem + "amos", stem + "an")
        past = (before_e + "é", stem + "ó", stem + "amos", stem + "aron")
        return (*present, *past, infinitive)
    stem = infinitive.removesuffix("are")
    before_i = stem + "h" if stem.endswith(("c", "g")) else stem.removesuffix("i")
    return stem + "o", stem + "a", before_i + "iamo", stem + "ano", infinitive, stem + "ato"


def _object(language: str, verb: str, said: abstract.NounPhrase) -> str:
    text = _noun_phrase(language, said)
    if language != "es":
        return text
    animal = lexicon.is_animal(said.noun) and verb in lexicon.names("es", "personal")
    if not animal and not lexicon.is_person(said.noun):
        return text
    return "al " + text.removeprefix("el ") if text.startswith("el ") else "a " + text


def _form(language: str, said: abstract.NounPhrase) -> int:
    """Return the index of gender and number in a row of four forms."""
    feminine = lexicon.words(language, "nouns")[said.noun][0] == "f"
    return int(feminine) + 2 * int(said.plural)


def _noun_phrase(language: str, said: abstract.NounPhrase) -> str:
    form = _form(language, said)
    noun = _noun(language, said)
    determiner = _DETERMINERS[language][said.determiner][form]
    if language == "fr":
        noun = _french_joined(determiner, noun)
    elif language == "it":
        noun = _italian_joined(determiner, noun)
    else:
        noun = join(determiner, noun)
    adjective = "" if said.adjective is None else _adjective(language, said.adjective, form)
    return join(noun, adjective)


def _noun(language: str, said: abstract.NounPhrase) -> str:
    gender, singular, *irregular = lexicon.words(language, "nouns")[said.noun]
    if not said.plural:
        return singular
    if irregular:
        return irregular[0]
    if language == "it":
        return singular[:-1] + ("e" if gender == "f" and singular.endswith("a") else "i")
    return singular + ("s" if language == "fr" or _vowel_final(singular) else "es")


def _adjective(language: str, key: str, form: int) -> str:
    forms = lexicon.words(language, "adjectives")[key]
    if len(forms) > 1:
        return forms[form]
    masculine = forms[0]
    if language == "fr":
        bare = masculine.removesuffix("e")
        return (masculine, bare + "e", masculine + "s", bare + "es")[form]
    stem = masculine[:-1]
    if masculine.endswith("e"):
        plural = masculine + "s" if language == "es" else stem + "i"
        return (masculine, masculine, plural, plural)[form]
    if language == "es":
        return (masculine, stem + "a", stem + "os", stem + "as")[form]
    return (masculine, stem + "a", stem + "i", stem + "e")[form]


def _letters(word: str) -> str:
    """Return the word without its accents."""
    signs = unicodedata.normalize("NFD", word)
    return "".join(sign for sign in signs if not unicodedata.combining(sign))


def _vowel_final(word: str) -> bool:
    return _letters(word)[-1] in "aeiou"


def _french_joined(before: str, word: str) -> str:
    # No noun or verb of the lexicon has the h that forbids elision.
    if _letters(word)[0] in "aeiouh":
        before = _FRENCH_BEFORE_VOWEL.get(before, before)
    return before + word if before.endswith("'") else join(before, word)


def _italian_joined(before: str, word: str) -> str:
    if _letters(word)[0] in "aeiou":
        before = _ITALIAN_BEFORE_VOWEL.get(before, before)
    elif word.startswith(_ITALIAN_IMPURE):
        before = _ITALIAN_BEFORE_IMPURE.get(before, before)
    return before + word if before.endswith("'") else join(before, word)
