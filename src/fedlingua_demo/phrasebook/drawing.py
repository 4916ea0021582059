"""Draw abstract sentences at random from one register."""

import random
from dataclasses import dataclass
from functools import cache

from . import lexicon
from .abstract import (
    Clause,
    Determiner,
    Duty,
    Existence,
    Force,
    NounPhrase,
    Pronoun,
    Quality,
    Question,
    Report,
    Request,
    Sentence,
    Statement,
    Tense,
    lexemes,
)

BASE = "base"

# The relative frequency of each construction. The base register has no official ones; the other registers have both kinds, and a
# word of their own in every sentence.
_BASE_KINDS = {"statement": 9, "question": 4, "quality": 4, "existence": 3}
_OFFICIAL_KINDS = {"request": 2, "duty": 2, "report": 2, "clock": 2, "statement": 4, "question": 2, "quality": 2}

_OWN_WORD = 0.3
_ADJECTIVE = 0.4
_PLURAL = 0.4
_PAST = 0.5
_PLACE = 0.3


@dataclass(frozen=True)
class _Stock:
    """The words that one register may use, each list in the lexicon's order."""

    register: str
    nouns: tuple[str, ...]
    persons: tuple[str, ...]
    verbs: tuple[str, ...]
    places: tuple[str, ...]
    objects: dict[str, tuple[str, ...]]
    adjectives: dict[str, tuple[str, ...]]

    def own(self, section: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys that belong to the register itself."""
        table = lexicon.meanings(section)
        return tuple(key for key in keys if table[key].register == self.register)


@cache
def _stock(register: str) -> _Stock:
    def usable(section: str) -> tuple[str, ...]:
        table = lexicon.meanings(section)
        return tuple(key for key, meaning in table.items() if meaning.register in (BASE, register))

    def fits(noun: str, tags: frozenset[str]) -> bool:
        return noun in tags or bool(tags & lexicon.meanings("nouns")[noun].tags)

    def fitting(tags: frozenset[str]) -> tuple[str, ...]:
        return tuple(noun for noun in nouns if fits(noun, tags))

    def describing(noun: str) -> tuple[str, ...]:
        return tuple(key for key in usable("adjectives") if fits(noun, adjectives[key].tags))

    nouns = usable("nouns")
    verbs = lexicon.meanings("verbs")
    adjectives = lexicon.meanings("adjectives")
    # Official speech is not set in a kitchen or a market; it may be set in the town.
    places = lexicon.meanings("places")
    own_places = tuple(key for key, meaning in places.items() if meaning.register == register)
    return _Stock(
        register=register,
        nouns=nouns,
        persons=tuple(noun for noun in nouns if lexicon.is_person(noun)),
        verbs=usable("verbs"),
        places=usable("places") if register == BASE else ("city", *own_places),
        objects={verb: fitting(verbs[verb].tags) for verb in usable("verbs")},
        adjectives={noun: describing(noun) for noun in nouns},
    )


def draw(register: str, rng: random.Random) -> Sentence:
    """Draw one abstract sentence with at least one lexeme of its register."""
    stock = _stock(register)
    while True:
        said = _draw(stock, rng)
        owners = {lexicon.meanings(section)[key].register for section, key in lexemes(said)}
        if register in owners:
            return said


def _draw(stock: _Stock, rng: random.Random) -> Sentence:
    kinds = _BASE_KINDS if stock.register == BASE else _OFFICIAL_KINDS
    kind = rng.choices(tuple(kinds), tuple(kinds.values()))[0]
    match kind:
        case "statement":
            return _statement(stock, rng)
        case "clock":
            subject = _subject(stock, rng, ("the", "this", "my"))
            return Statement(_clause(stock, rng, subject, "present"), _clock(rng))
        case "question":
            subject = _person(stock, rng, ("the", "this", "my"))
            return Question(_clause(stock, rng, subject, _tense(rng), deniable=False))
        case "quality":
            return _quality(stock, rng)
        case "existence":
            noun = rng.choice(stock.nouns)
            place = rng.choice(_places(stock, noun))
            return Existence(_phrase(stock, rng, noun, ("a",)), place, _tense(rng))
        case "request":
            verb = _verb(stock, rng, asked=True)
            thing = _thing(stock, rng, verb, ("the", "this"), but=None)
            return Request(verb, thing, _place(stock, rng, thing.noun))
        case "duty":
            return _duty(stock, rng)
        case _:
            return _report(stock, rng)


def _statement(stock: _Stock, rng: random.Random) -> Statement:
    subject = _subject(stock, rng, ("the", "this", "my"))
    tense = _tense(rng)
    times = lexicon.meanings("times")
    fitting = tuple(key for key, meaning in times.items() if meaning.register == tense)
    # Spanish "compramos" is present and past alike: with "we" the time has to tell them apart.
    time = rng.choice(fitting) if subject == "we" or rng.random() < 0.4 else None
    return Statement(_clause(stock, rng, subject, tense), time)


def _quality(stock: _Stock, rng: random.Random) -> Quality:
    noun = rng.choice([noun for noun in stock.nouns if stock.adjectives[noun]])
    adjective = rng.choice(stock.adjectives[noun])
    subject = _phrase(stock, rng, noun, ("the", "this", "my"), plain=True)
    forces: tuple[Force, ...] = ("affirm", "deny", "ask")
    return Quality(subject, adjective, _tense(rng), rng.choices(forces, (3, 2, 2))[0])


def _report(stock: _Stock, rng: random.Random) -> Report:
    speaker = _person(stock, rng, ("the", "this", "my"), plain=True)
    subject = _person(stock, rng, ("the", "this"), but=speaker.noun)
    while True:
        clause = _clause(stock, rng, subject, _tense(rng))
        # A speaker who names himself or herself would say "me".
        if clause.object.noun != speaker.noun:
            return Report(speaker, clause)


def _duty(stock: _Stock, rng: random.Random) -> Duty:
    subject = _subject(stock, rng, ("the", "this", "my"))
    verb = _verb(stock, rng, asked=True)
    thing = _thing(stock, rng, verb, _object_determiners(subject), but=subject)
    time = _clock(rng) if rng.random() < 0.4 else None
    return Duty(subject, verb, thing, time, _place(stock, rng, thing.noun))


def _clause(
    stock: _Stock,
    rng: random.Random,
    subject: NounPhrase | Pronoun,
    tense: Tense,
    deniable: bool = True,
) -> Clause:
    verb = _verb(stock, rng)
    thing = _thing(stock, rng, verb, _object_determiners(subject), but=subject)
    negative = deniable and rng.random() < 0.3
    # With a place, a negation would leave open what it denies, and German word order depends on that.
    place = None if negative else _place(stock, rng, thing.noun)
    return Clause(subject, verb, thing, tense, negative, place)


def _object_determiners(subject: NounPhrase | Pronoun) -> tuple[Determiner, ...]:
    # "I ... my" would need the Slavic reflexive possessive.
    return ("the", "this", "my") if isinstance(subject, NounPhrase) else ("the", "this")


def _subject(
    stock: _Stock,
    rng: random.Random,
    determiners: tuple[Determiner, ...],
) -> NounPhrase | Pronoun:
    draw = rng.random()
    if draw < 0.1:
        return "I"
    if draw < 0.2:
        return "we"
    return _person(stock, rng, determiners)


def _person(
    stock: _Stock,
    rng: random.Random,
    determiners: tuple[Determiner, ...],
    but: str | None = None,
    plain: bool = False,
) -> NounPhrase:
    persons = tuple(noun for noun in stock.persons if noun != but)
    return _phrase(stock, rng, _choice(stock, rng, "nouns", persons), determiners, plain)


def _thing(
    stock: _Stock,
    rng: random.Random,
    verb: str,
    determiners: tuple[Determiner, ...],
    but: NounPhrase | Pronoun | None,
) -> NounPhrase:
    taken = but.noun if isinstance(but, NounPhrase) else None
    nouns = tuple(noun for noun in stock.objects[verb] if noun != taken)
    said = _phrase(stock, rng, _choice(stock, rng, "nouns", nouns), determiners)
    bare = said.determiner == "the" and said.adjective is None
    if bare and said.plural and lexicon.is_person(said.noun):
        # Czech "malíře" is one painter or several: without other words, it always means one.
        return NounPhrase(said.noun)
    return said


def _phrase(
    stock: _Stock,
    rng: random.Random,
    noun: str,
    determiners: tuple[Determiner, ...],
    plain: bool = False,
) -> NounPhrase:
    if noun in lexicon.unowned():
        determiners = tuple(key for key in determiners if key != "my")
    determiner = rng.choice((determiners[0], *determiners))
    plural = rng.random() < _PLURAL
    adjective = None
    if not plain and stock.adjectives[noun] and rng.random() < _ADJECTIVE:
        adjective = _choice(stock, rng, "adjectives", stock.adjectives[noun])
    return NounPhrase(noun, determiner, plural, adjective)


def _verb(stock: _Stock, rng: random.Random, asked: bool = False) -> str:
    barred = lexicon.perceptions() if asked else ()
    return _choice(stock, rng, "verbs", tuple(key for key in stock.verbs if key not in barred))


def _choice(stock: _Stock, rng: random.Random, section: str, keys: tuple[str, ...]) -> str:
    """Draw one of the keys; a register prefers its own words to those it shares with the base."""
    own = stock.own(section, keys) if stock.register != BASE else ()
    return rng.choice(own if own and rng.random() < _OWN_WORD else keys)


def _places(stock: _Stock, noun: str) -> tuple[str, ...]:
    """Return the places where something can be: nothing that is found outdoors is indoors."""
    if "d" not in lexicon.meanings("nouns")[noun].tags:
        return stock.places
    places = lexicon.meanings("places")
    return tuple(key for key in stock.places if "indoors" not in places[key].tags)


def _place(stock: _Stock, rng: random.Random, noun: str) -> str | None:
    if rng.random() >= _PLACE:
        return None
    return _choice(stock, rng, "places", _places(stock, noun))


def _clock(rng: random.Random) -> str:
    times = lexicon.meanings("times")
    return rng.choice([key for key, meaning in times.items() if meaning.register == "clock"])


def _tense(rng: random.Random) -> Tense:
    return "past" if rng.random() < _PAST else "present"
