"""Polish, Czech and Slovene: no articles, case and animacy on the whole noun phrase."""

from . import abstract, lexicon
from .inflection import Agreement, Case, adjective, agreement, determiner, noun, past
from .orthography import join, sentence

_THAT = {"pl": "że", "cs": "že", "sl": "da"}
_NOT = {"pl": "nie", "sl": "ne"}
_WHETHER = {"pl": "czy", "cs": "", "sl": "ali"}
_SAY = {"pl": ("mówi", "mówią"), "cs": ("říká", "říkají"), "sl": ("pravi", "pravijo")}
_MUST = {
    "pl": ("muszę", "musi", "musimy", "muszą"),
    "cs": ("musím", "musí", "musíme", "musí"),
    "sl": ("moram", "mora", "moramo", "morajo"),
}
_IS = {"pl": ("jest", "są"), "cs": ("je", "jsou"), "sl": ("je", "so")}
_IS_NOT = {"pl": ("nie jest", "nie są"), "cs": ("není", "nejsou"), "sl": ("ni", "niso")}
_BEEN = {"pl": ("był", "była", "byli"), "cs": ("byl",), "sl": ("bil", "bila")}

# The auxiliary of the past by person; Slovene has its own negated one.
_CZECH_AUXILIARY = ("jsem", "", "jsme", "")
_SLOVENE_AUXILIARY = ("sem", "je", "smo", "so")
_SLOVENE_NEGATED = ("nisem", "ni", "nismo", "niso")


def linearise(language: str, said: abstract.Sentence) -> str:
    """Return the sentence of a Slavic language for an abstract sentence."""
    match said:
        case abstract.Statement(clause, time):
            front = lexicon.phrase(language, "times", time)
            return sentence(front, _clause(language, clause, fronted=bool(front)))
        case abstract.Question(clause):
            return _question(language, clause)
        case abstract.Quality():
            return _quality(language, said)
        case abstract.Existence():
            subject = _noun_phrase(language, said.subject)
            place = lexicon.phrase(language, "places", said.place)
            return sentence(place, *_was(language, said.subject, said.tense), subject)
        case abstract.Request():
            return _request(language, said)
        case abstract.Duty():
            return _duty(language, said)
        case abstract.Report(speaker, clause):
            say = _SAY[language][int(speaker.plural)]
            head = join(_noun_phrase(language, speaker), say) + ","
            return sentence(head, _THAT[language], _clause(language, clause, fronted=True))


def _clause(language: str, clause: abstract.Clause, fronted: bool) -> str:
    """Return a clause in a statement's order; fronted: whether a word stands before it."""
    subject = _subject(language, clause.subject)
    auxiliary, verb = _verb(language, clause)
    rest = _rest(language, clause)
    if language == "sl" and clause.tense == "past" and not clause.negative:
        if fronted:
            # The unstressed auxiliary takes the second place, before the subject.
            return join(auxiliary, subject, verb, rest)
        return join(subject, auxiliary, verb, rest) if subject else join(verb, auxiliary, rest)
    if language == "cs" and not fronted:
        return join(subject, verb, auxiliary, rest)
    if language == "cs":
        return join(auxiliary, subject, verb, rest)
    return join(subject, auxiliary, verb, rest)


def _question(language: str, clause: abstract.Clause) -> str:
    if language == "cs":
        subject = _subject(language, clause.subject)
        _, verb = _verb(language, clause)
        return sentence(verb, subject, _rest(language, clause), mark="?")
    return sentence(_WHETHER[language], _clause(language, clause, fronted=True), mark="?")


def _rest(language: str, clause: abstract.Clause) -> str:
    case: Case = "genitive" if clause.negative and language != "cs" else "accusative"
    place = lexicon.phrase(language, "places", clause.place)
    return join(_noun_phrase(language, clause.object, case), place)


def _quality(language: str, said: abstract.Quality) -> str:
    subject = _noun_phrase(language, said.subject)
    agrees = agreement(language, said.subject.noun, said.subject.plural)
    quality = adjective(language, said.adjective, agrees, "nominative", definite=False)
    negative = said.force == "deny"
    finite, been = _was(language, said.subject, said.tense, negative)
    if said.force != "ask":
        return sentence(subject, finite, been, quality)
    if language == "pl":
        return sentence("czy", subject, finite, been, quality, mark="?")
    return sentence(_WHETHER[language], finite, been, subject, quality, mark="?")


def _was(
    language: str,
    subject: abstract.NounPhrase,
    tense: abstract.Tense,
    negative: bool = False,
) -> tuple[str, str]:
    """Return the finite form of "be" and, separately, its participle if the past has both."""
    number = int(subject.plural)
    finite = (_IS_NOT if negative else _IS)[language][number]
    if tense == "present":
        return finite, ""
    been = past(language, _BEEN[language], agreement(language, subject.noun, subject.plural))
    if language == "sl":
        return finite, been
    if not negative:
        return been, ""
    return ("ne" + been if language == "cs" else "nie " + been), ""


def _request(language: str, said: abstract.Request) -> str:
    verb = lexicon.words(language, "verbs")[said.verb]
    thing = _noun_phrase(language, said.object, "accusative")
    place = lexicon.phrase(language, "places", said.place)
    if language == "pl":
        return sentence("proszę", verb[2], thing, place)
    if language == "cs":
        return sentence("prosím,", verb[5], thing, place)
    return sentence("prosimo,", verb[3], thing, place)


def _duty(language: str, said: abstract.Duty) -> str:
    verb = lexicon.words(language, "verbs")[said.verb]
    infinitive = verb[4 if language == "cs" else 2]
    front = lexicon.phrase(language, "times", said.time)
    subject = _subject(language, said.subject)
    must = _MUST[language][_person(said.subject)]
    thing = _noun_phrase(language, said.object, "accusative")
    place = lexicon.phrase(language, "places", said.place)
    if front and language != "pl":
        return sentence(front, must, subject, infinitive, thing, place)
    return sentence(front, subject, must, infinitive, thing, place)


def _person(subject: abstract.NounPhrase | abstract.Pronoun) -> int:
    if isinstance(subject, abstract.NounPhrase):
        return 3 if subject.plural else 1
    return 0 if subject == "I" else 2


def _subject(language: str, subject: abstract.NounPhrase | abstract.Pronoun) -> str:
    """Return the subject; empty for a pronoun, which the verb shows."""
    return _noun_phrase(language, subject) if isinstance(subject, abstract.NounPhrase) else ""


def _verb(language: str, clause: abstract.Clause) -> tuple[str, str]:
    """Return the auxiliary, which has its own position, and the verb with its negation."""
    forms = lexicon.words(language, "verbs")[clause.verb]
    person = _person(clause.subject)
    auxiliary = ""
    if clause.tense == "present":
        verb = _present(language, forms)[person]
    else:
        verb, auxiliary = _past(language, forms, clause, person)
    if not clause.negative:
        return auxiliary, verb
    if language == "cs":
        return auxiliary, "ne" + verb
    if auxiliary:
        return auxiliary, verb
    return "", join(_NOT[language], verb)


def _past(
    language: str,
    forms: tuple[str, ...],
    clause: abstract.Clause,
    person: int,
) -> tuple[str, str]:
    subject = clause.subject
    if isinstance(subject, abstract.NounPhrase):
        agrees = agreement(language, subject.noun, subject.plural)
    else:
        # "I" and "we" count as masculine, so that the past has one form.
        agrees = Agreement("v" if language == "pl" else "a", subject == "we")
    participles = _participles(language, forms)
    verb = past(language, participles, agrees)
    if language == "sl":
        return verb, (_SLOVENE_NEGATED if clause.negative else _SLOVENE_AUXILIARY)[person]
    if language == "cs":
        return verb, _CZECH_AUXILIARY[person]
    if subject == "I":
        return participles[1][:-1] + "em", ""
    return (verb + "śmy" if subject == "we" else verb), ""


def _present(language: str, forms: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Return the forms for I, he or she, we, they."""
    if language == "sl":
        he = forms[0]
        return he + "m", he, he + "mo", he + "jo"
    me, he = forms[0], forms[1]
    if language == "cs":
        return me, he, he + "me", forms[2]
    they = me.removesuffix("ę") + "ą" if me.endswith("ę") else he + "ją"
    return me, he, he + "my", they


def _participles(language: str, forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms that the past agrees from: Polish three, Czech one, Slovene two."""
    if language == "cs":
        return (forms[3],)
    if language == "sl":
        masculine = forms[1]
        return masculine, forms[4] if len(forms) > 4 else masculine + "a"
    if len(forms) > 3:
        return forms[3:6]
    stem = forms[2].removesuffix("ć")
    return stem + "ł", stem + "ła", stem + "li"


def _noun_phrase(language: str, said: abstract.NounPhrase, case: Case = "nominative") -> str:
    agrees = agreement(language, said.noun, said.plural)
    quality = ""
    if said.adjective is not None:
        definite = said.determiner != "a"
        quality = adjective(language, said.adjective, agrees, case, definite)
    word = noun(language, said.noun, said.plural, case)
    return join(determiner(language, said.determiner, agrees, case), quality, word)
