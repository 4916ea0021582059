"""Signs that a backbone knows nothing of a text: such a model trains without an error, and translates nothing."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache

from fedlingua.backbones.directories import BUILT_IN
from fedlingua.backbones.fingerprint import BackboneFiles
from fedlingua.common.languages import Direction, known_as, language_name, parse_written
from fedlingua_demo import phrasebook

NEAR_CHANCE = 0.9
"""Dev loss as a share of ln(vocabulary), which is guessing. The demo's: 0.7 on the phrasebook's registers, 1.0 to 1.1 on real text."""
UNKNOWN_SHARE = 0.1
"""Of a text's pieces: 0.03 in a register that is new to the demo backbone, over 0.4 in a script that a backbone has not seen."""
PHRASEBOOK_SHARE = 0.6
"""Of a text's words: 0.9 or more of any register's are the phrasebook's, 0.3 at most of real text's in its nine languages."""
ELSE = "choose a backbone that knows it (docs/guides/backbones.md)"


def known_languages(backbone: BackboneFiles) -> tuple[set[str], set[str]]:
    """Languages that it reads and writes: the phrasebook's, its recipe's, else its tokenizer's; none where nothing says so."""
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
    """A sentence for each language that the backbone was not trained on, and for each side with many pieces or words unknown to it."""
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
        ids = [number for pieces in backbone.codec.pieces(sentences, written=verb == "write") for number in pieces]
        share = ids.count(backbone.codec.tokenizer.unk_token_id) / max(1, len(ids))
        if share > UNKNOWN_SHARE:
            yield f"{language}: {share:.0%} of the text is unknown to the tokenizer of backbone {backbone.name!r}; {ELSE}"


def _words(sentences: Sequence[str]) -> list[str]:
    return [word for sentence in sentences for word in re.findall(r"\w+", sentence.lower())]


@cache
def _phrasebook_words() -> dict[str, set[str]]:
    """Language -> nearly all words of the phrasebook."""
    corpora = [
        phrasebook.base_corpus(150, 0),
        *(phrasebook.register_corpus(register, 30, 0) for register in phrasebook.REGISTERS),
    ]
    return {code: {word for corpus in corpora for word in _words(corpus[code])} for code in phrasebook.LANGUAGES}


def near_chance(site: str, loss: float, vocabulary: int) -> Iterator[str]:
    """A sentence where the backbone's loss, nats a token, is near that of guessing."""
    if loss > NEAR_CHANCE * math.log(vocabulary):
        losses = f"{loss:.1f} nats a token, where guessing has {math.log(vocabulary):.1f}"
        yield f"site {site}: the backbone's dev loss is {losses}, so it knows nothing of this text; {ELSE}"
