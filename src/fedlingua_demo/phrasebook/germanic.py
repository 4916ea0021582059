"""German, Dutch and Swedish: verb-second main clauses, adjectives before the noun."""

from dataclasses import dataclass

from . import abstract, lexicon
from .orthography import join, sentence

_PRONOUNS = {
    "de": {"I": "ich", "we": "wir"},
    "nl": {"I": "ik", "we": "wij"},
    "sv": {"I": "jag", "we": "vi"},
}
_NOT = {"de": "nicht", "nl": "niet", "sv": "inte"}
_THAT = {"de": "dass", "nl": "dat", "sv": "att"}

# Forms for I, for he or she, and for all plurals.
_HAVE = {"de": ("habe", "hat", "haben"), "nl": ("heb", "heeft", "hebben")}
_MUST = {
    "de": ("muss", "muss", "müssen"),
    "nl": ("moet", "moet", "moeten"),
    "sv": ("måste", "måste", "måste"),
}
_SAY = {
    "de": ("sage", "sagt", "sagen"),
    "nl": ("zeg", "zegt", "zeggen"),
    "sv": ("säger", "säger", "säger"),
}
_BE = {
    "de": {"present": ("bin", "ist", "sind"), "past": ("war", "war", "waren")},
    "nl": {"present": ("ben", "is", "zijn"), "past": ("was", "was", "waren")},
    "sv": {"present": ("är", "är", "är"), "past": ("var", "var", "var")},
}

# German by gender, p for plural: endings of dieser, of mein, of the adjective after mein or ein; articles.
_DIES = {"m": "er", "f": "e", "n": "es", "p": "e"}
_MEIN = {"m": "", "f": "e", "n": "", "p": "e"}
_MIXED = {"m": "er", "f": "e", "n": "es"}
_DER = {"m": "der", "f": "die", "n": "das", "p": "die"}

# German prefixes whose verbs form the participle without ge-.
_INSEPARABLE = ("be", "ent", "er", "ver")


@dataclass(frozen=True)
class _Predicate:
    """A verb in two parts: the finite form, and the rest, which stands apart from it."""

    finite: str
    rest: str = ""


def linearise(language: str, said: abstract.Sentence) -> str:
    """Return the sentence of a Germanic language for an abstract sentence."""
    match said:
        case abstract.Statement(clause, time):
            front = lexicon.phrase(language, "times", time)
            return sentence(_main(language, clause, front))
        case abstract.Question(clause):
            return sentence(_verb_first(language, clause, _clause_verb(language, clause)), mark="?")
        case abstract.Quality():
            return _quality(language, said)
        case abstract.Existence():
            return _existence(language, said)
        case abstract.Request():
            return _request(language, said)
        case abstract.Duty(subject, verb, thing, time, place):
            clause = abstract.Clause(subject, verb, thing, place=place)
            must = _MUST[language][_person(subject)]
            predicate = _Predicate(must, _verb(language, verb)[2])
            front = lexicon.phrase(language, "times", time)
            return sentence(_verb_second(language, clause, predicate, front))
        case abstract.Report(speaker, clause):
            say = _SAY[language][_person(speaker)]
            comma = "," if language == "de" else ""
            head = join(_subject(language, speaker), say) + comma
            return sentence(head, _THAT[language], _subordinate(language, clause))


def _main(language: str, clause: abstract.Clause, front: str) -> str:
    return _verb_second(language, clause, _clause_verb(language, clause), front)


def _verb_second(language: str, clause: abstract.Clause, predicate: _Predicate, front: str) -> str:
    if front:
        return join(front, _verb_first(language, clause, predicate))
    subject = _subject(language, clause.subject)
    return join(subject, predicate.finite, _after(language, clause, predicate))


def _verb_first(language: str, clause: abstract.Clause, predicate: _Predicate) -> str:
    subject = _subject(language, clause.subject)
    return join(predicate.finite, subject, _after(language, clause, predicate))


def _after(language: str, clause: abstract.Clause, predicate: _Predicate) -> str:
    """Return what follows the finite verb and the subject of a main clause."""
    thing, negation, place = _complements(language, clause)
    if language == "sv":
        return join(negation, predicate.rest, thing, place)
    return join(thing, negation, place, predicate.rest)


def _subordinate(language: str, clause: abstract.Clause) -> str:
    subject = _subject(language, clause.subject)
    predicate = _clause_verb(language, clause)
    thing, negation, place = _complements(language, clause)
    if language == "sv":
        return join(subject, negation, predicate.finite, predicate.rest, thing, place)
    if language == "nl":
        return join(subject, thing, negation, place, predicate.finite, predicate.rest)
    return join(subject, thing, negation, place, predicate.rest, predicate.finite)


def _complements(language: str, clause: abstract.Clause) -> tuple[str, str, str]:
    return (
        _noun_phrase(language, clause.object, accusative=True),
        _NOT[language] if clause.negative else "",
        lexicon.phrase(language, "places", clause.place),
    )


def _quality(language: str, said: abstract.Quality) -> str:
    subject = _subject(language, said.subject)
    verb = _BE[language][said.tense][_person(said.subject)]
    adjective = _predicative(language, said.adjective, said.subject)
    if said.force == "ask":
        return sentence(verb, subject, adjective, mark="?")
    negation = _NOT[language] if said.force == "deny" else ""
    return sentence(subject, verb, negation, adjective)


def _existence(language: str, said: abstract.Existence) -> str:
    subject = _noun_phrase(language, said.subject)
    place = lexicon.phrase(language, "places", said.place)
    if language == "sv":
        return sentence("det finns" if said.tense == "present" else "det fanns", subject, place)
    verb = _BE[language][said.tense][_person(said.subject)]
    if language == "nl":
        return sentence("er", verb, subject, place)
    return sentence(place, verb, subject)


def _request(language: str, said: abstract.Request) -> str:
    verb = _verb(language, said.verb)
    thing = _noun_phrase(language, said.object, accusative=True)
    place = lexicon.phrase(language, "places", said.place)
    if language == "de":
        return sentence("bitte", verb[2], "Sie", thing, place)
    if language == "nl":
        return sentence("gelieve", thing, place, "te", verb[2])
    return sentence("vänligen", verb[3], thing, place)


def _person(subject: abstract.NounPhrase | abstract.Pronoun) -> int:
    if isinstance(subject, abstract.NounPhrase):
        return 2 if subject.plural else 1
    return 0 if subject == "I" else 2


def _subject(language: str, subject: abstract.NounPhrase | abstract.Pronoun) -> str:
    if isinstance(subject, abstract.NounPhrase):
        return _noun_phrase(language, subject)
    return _PRONOUNS[language][subject]


def _clause_verb(language: str, clause: abstract.Clause) -> _Predicate:
    verb = _verb(language, clause.verb)
    person = _person(clause.subject)
    if language == "sv":
        return _Predicate(verb[0] if clause.tense == "present" else verb[1])
    if clause.tense == "past":
        return _Predicate(_HAVE[language][person], verb[3])
    return _Predicate(verb[person])


def _verb(language: str, key: str) -> tuple[str, ...]:
    """Return German and Dutch forms for I, he, infinitive and plural, participle; Swedish ones in its file's order."""
    forms = lexicon.words(language, "verbs")[key]
    if len(forms) > 1:
        return forms
    infinitive = forms[0]
    if language == "sv":
        return infinitive + "r", infinitive + "de", infinitive, infinitive
    if language == "nl":
        stem = infinitive.removesuffix("eren") + "eer"
        return stem, stem + "t", infinitive, f"ge{stem}d"
    stem = infinitive.removesuffix("en")
    bare = infinitive.endswith("ieren") or infinitive.startswith(_INSEPARABLE)
    return stem + "e", stem + "t", infinitive, f"{'' if bare else 'ge'}{stem}t"


def _noun_phrase(language: str, said: abstract.NounPhrase, accusative: bool = False) -> str:
    if language == "de":
        return _german(said, accusative)
    if language == "nl":
        return _dutch(said)
    return _swedish(said)


def _german(said: abstract.NounPhrase, accusative: bool) -> str:
    gender, singular, plural, *weak = lexicon.words("de", "nouns")[said.noun]
    noun = plural if said.plural else singular
    form = "p" if said.plural else gender
    masculine_accusative = accusative and form == "m"
    if masculine_accusative and weak:
        noun = weak[0]
    if masculine_accusative:
        determiner = {"the": "den", "this": "diesen", "my": "meinen", "a": "einen"}
    else:
        determiner = {
            "the": _DER[form],
            "this": "dies" + _DIES[form],
            "my": "mein" + _MEIN[form],
            "a": "" if said.plural else "ein" + _MEIN[form],
        }
    if said.adjective is None:
        return join(determiner[said.determiner], noun)
    if masculine_accusative:
        ending = "en"
    elif said.plural:
        ending = "e" if said.determiner == "a" else "en"
    elif said.determiner in ("my", "a"):
        ending = _MIXED[form]
    else:
        ending = "e"
    stem = lexicon.words("de", "adjectives")[said.adjective][-1]
    return join(determiner[said.determiner], stem + ending, noun)


def _dutch(said: abstract.NounPhrase) -> str:
    article, singular, plural = lexicon.words("nl", "nouns")[said.noun]
    neuter = article == "het" and not said.plural
    determiner = {
        "the": "het" if neuter else "de",
        "this": "dit" if neuter else "deze",
        "my": "mijn",
        "a": "" if said.plural else "een",
    }
    adjective = ""
    if said.adjective is not None:
        plain, inflected = lexicon.words("nl", "adjectives")[said.adjective]
        adjective = plain if neuter and said.determiner == "a" else inflected
    return join(determiner[said.determiner], adjective, plural if said.plural else singular)


def _swedish_noun(key: str) -> tuple[str, ...]:
    forms = lexicon.words("sv", "nouns")[key]
    if len(forms) > 2:
        return forms
    article, singular = forms
    stem = singular.removesuffix("a")
    return article, singular, singular + "n", stem + "or", stem + "orna"


def _swedish_adjective(key: str) -> tuple[str, ...]:
    forms = lexicon.words("sv", "adjectives")[key]
    return forms if len(forms) > 1 else (forms[0], forms[0] + "t", forms[0] + "a")


def _swedish(said: abstract.NounPhrase) -> str:
    article, singular, singular_definite, plural, plural_definite = _swedish_noun(said.noun)
    neuter = article == "ett"
    definite = plural_definite if said.plural else singular_definite
    indefinite = plural if said.plural else singular
    den = "de" if said.plural else "det" if neuter else "den"
    adjective = ""
    if said.adjective is not None:
        common, neutral, weak = _swedish_adjective(said.adjective)
        strong = neutral if neuter else common
        adjective = strong if said.determiner == "a" and not said.plural else weak
    match said.determiner:
        case "the":
            return join(den, adjective, definite) if adjective else definite
        case "this":
            return join(den, "här", adjective, definite)
        case "my":
            my = "mina" if said.plural else "mitt" if neuter else "min"
            return join(my, adjective, indefinite)
        case "a":
            return join("" if said.plural else article, adjective, indefinite)


def _predicative(language: str, key: str, subject: abstract.NounPhrase) -> str:
    if language != "sv":
        return lexicon.words(language, "adjectives")[key][0]
    common, neutral, plural = _swedish_adjective(key)
    if subject.plural:
        return plural
    return neutral if lexicon.words("sv", "nouns")[subject.noun][0] == "ett" else common
