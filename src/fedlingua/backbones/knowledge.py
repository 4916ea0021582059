"""Warnings that a backbone does not know a text: such a model trains without an error, but translates nothing."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from fedlingua.backbones.directories import BUILT_IN
from fedlingua.backbones.fingerprint import BackboneFiles
from fedlingua.common.language_codes import known_as
from fedlingua.common.languages import Direction, language_name, parse_written
from fedlingua_demo import phrasebook

NEAR_CHANCE = 0.9
"""Dev loss / ln(vocabulary) to warn above; 1 is guessing. Demo: 0.7 on the phrasebook's registers, 1.0-1.1 on real text."""
PHRASEBOOK_SHARE = 0.6
"""Share of the phrasebook's words to warn below: 0.9 or more in all registers, at most 0.3 in real text of its 9 languages."""
NAMED = 3
"""Most sites that a warning names."""
LISTED = 12
"""Most characters that a warning lists."""
ELSE = "choose a backbone that knows it (docs/guides/backbones.md)"


def known_languages(backbone: BackboneFiles) -> tuple[set[str], set[str]]:
    """Return a backbone's source and target languages: its recipe's, the phrasebook's or its tokenizer's; empty if unknown."""
    languages = {*phrasebook.LANGUAGES}
    read, written = (languages, languages) if backbone.name in BUILT_IN else (backbone.codec.reads, backbone.codec.writes)
    card = backbone.directory / "pretraining.json"
    if card.is_file():
        recipe = json.loads(card.read_text(encoding="utf-8")).get("recipe", {})
        directions = [parse_written(text) for text in recipe.get("corpora", ())]
        directions += [direction.reverse for direction in directions if recipe.get("both_ways")]
        if directions:
            read, written = {each.source for each in directions}, {each.target for each in directions}
    return read, written


def doubts(backbone: BackboneFiles, direction: Direction, pairs: Sequence[tuple[str, str]] = ()) -> Iterator[str]:
    """Yield a warning for each language that the backbone does not know, and each side with unknown characters or words."""
    sides = [*zip(*pairs, strict=True)] or [(), ()]
    named = zip((direction.source, direction.target), ("read", "write"), known_languages(backbone), sides, strict=True)
    for language, verb, known, sentences in [*named][: 1 if direction.is_one_language else 2]:
        if known and backbone.drawn_with is None and known_as(language, known) is None:
            named_here = f"{language_name(language)}, only {', '.join(sorted(known))}"
            yield f"direction {direction}: backbone {backbone.name!r} was never trained to {verb} {named_here}; {ELSE}"
        if language in phrasebook.LANGUAGES and backbone.name in BUILT_IN and backbone.drawn_with is None:
            words = _words(sentences)
            share = sum(word in _phrasebook_words()[language] for word in words) / max(1, len(words))
            if words and share < PHRASEBOOK_SHARE:
                yield f"{language}: backbone {backbone.name!r} knows the phrasebook's words alone, {share:.0%} of this text's; {ELSE}"
        yield from unknown_characters(backbone, language, sentences, verb == "write")


def unknown_characters(backbone: BackboneFiles, language: str, sentences: Sequence[str], written: bool) -> Iterator[str]:
    """Yield one warning if sentences have characters that the tokenizer lacks. Tokenizes only those; any other text costs a look at its
    set of characters. written: as target text."""
    pieces, unknown = backbone.codec.pieces, backbone.codec.tokenizer.unk_token_id
    letters = sorted(set().union(*sentences))
    lacks = {letter for letter, ids in zip(letters, pieces(letters, written), strict=True) if unknown in ids}
    suspect = [sentence for sentence in sentences if not lacks.isdisjoint(sentence)]
    if number := sum(unknown in ids for ids in pieces(suspect, written)):
        some = [letter if letter.isprintable() else f"U+{ord(letter):04X}" for letter in sorted(lacks)]
        listed = " ".join(some[:LISTED]) + (f" and {len(some) - LISTED} more" if len(some) > LISTED else "")
        yield (
            f"{language}: {number:,} of {len(sentences):,} sentences have characters that the tokenizer of backbone {backbone.name!r} "
            f"lacks, so that they are lost: {listed}; choose a backbone that has them (docs/guides/backbones.md), or spell without them"
        )


def _words(sentences: Sequence[str]) -> list[str]:
    return [word for sentence in sentences for word in re.findall(r"\w+", sentence.lower())]


@cache
def _phrasebook_words() -> dict[str, set[str]]:
    """Return language -> nearly all words of the phrasebook."""
    corpora = [
        phrasebook.base_corpus(150, 0),
        *(phrasebook.register_corpus(register, 30, 0) for register in phrasebook.REGISTERS),
    ]
    return {code: {word for corpus in corpora for word in _words(corpus[code])} for code in phrasebook.LANGUAGES}


def near_chance(losses: Mapping[str, float], vocabulary: int) -> Iterator[str]:
    """Yield one warning if the backbone's loss, nats a token, is near that of guessing at some sites. losses: site -> loss."""
    guessing = math.log(vocabulary)
    if high := {site: loss for site, loss in losses.items() if loss > NEAR_CHANCE * guessing}:
        some = ", ".join(list(high)[:NAMED]) + (", ..." if len(high) > NAMED else "")
        where = f"site {some}" if len(high) == 1 else f"{len(high)} of {len(losses)} sites ({some})"
        span = " to ".join(dict.fromkeys(f"{loss:.1f}" for loss in (min(high.values()), max(high.values()))))
        words = f"{span} nats a token, where guessing has {guessing:.1f}"
        yield f"{where}: the backbone's dev loss is {words}, so it knows nothing of this text; {ELSE}"
