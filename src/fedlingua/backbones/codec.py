"""Convert sentences to subword ids and back, for M2M-100, NLLB, mBART-50 and encoders. Other families: codec_*.py."""

import re
from array import array
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from fedlingua.common.errors import BackboneError
from fedlingua.common.language_codes import bcp47, known_as, meant, members
from fedlingua.common.languages import Direction, kinship, nearest

_WITH_SCRIPT = re.compile("[a-z]{2,3}_[A-Z][a-z]{3}")
_REMEMBERED = 20_000_000
"""Ids that a codec caches, some 300 MB, so that a process tokenizes this much of its sites' text once and not in every round. A
sentence counts at least a quarter of its characters: unknown ones in a row can be one id."""


class Codec:
    """A tokenizer for translation, here in the format of M2M-100, NLLB and mBART-50: `[language] pieces [end]` on both sides
    (Fan et al. 2020; Tang et al. 2020; NLLB Team 2022). Other families have classes of their own, with the same methods.

    Args:
        tokenizer: The backbone's.
        start_id: The decoder's start token; None: the end token.

    Attributes:
        reads, writes: BCP-47 codes of the source and target languages; empty if the tokenizer does not list them.
        is_causal: Whether source and target are one sequence.
        begins_with_target: Whether a translation begins with the token of its language.
    """

    is_causal, begins_with_target = False, True

    def __init__(self, tokenizer: Any, start_id: int | None = None) -> None:
        self.tokenizer = tokenizer
        tokens = self.tokens_of(tokenizer)
        codes = bcp47(tokens)
        self.language_ids = {language: tokens[own][1] for language, own in codes.items()}
        self.language_codes = {language: tokens[own][0] for language, own in codes.items()}
        self._languages, self._with_scripts = frozenset(codes), any(map(_WITH_SCRIPT.match, tokens))
        ends = (tokenizer.eos_token_id, tokenizer.sep_token_id if tokenizer.eos_token_id is None else None)
        self.end_id = int(next(number for number in ends if number is not None))
        self.pad_id = self.end_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self.start_id = self.end_id if start_id is None else start_id
        self.reads, self.writes = set(self.language_ids), set(self.language_ids)
        self._remembered: dict[tuple[str, bool], array[int]] = {}  # a tenth of a list's size
        self._free = _REMEMBERED

    @staticmethod
    def tokens_of(tokenizer: Any) -> dict[str, tuple[str, int]]:
        """Return the model's own code of each language -> (its token, the token's id)."""
        codes: dict[str, int] = getattr(tokenizer, "lang_code_to_id", {})
        if codes:  # mBART-50 writes "de_DE" and M2M-100 "de": the language is the part before the underscore
            return {code.split("_")[0]: (code, int(number)) for code, number in codes.items()}
        added: dict[str, int] = tokenizer.get_added_vocab()
        return {code: (code, int(number)) for code, number in added.items() if _WITH_SCRIPT.fullmatch(code)}

    def check(self, directions: Iterable[Direction]) -> None:
        """Raise BackboneError for a direction whose source the backbone cannot read or whose target it cannot write."""
        for direction in directions:
            for code, known in ((direction.source, self.reads), (direction.target, self.writes)):
                with_scripts = self._with_scripts and known == self._languages
                if known and known_as(code, known, with_scripts) is None:
                    kin, names = kinship(code), sorted(known)
                    choices = meant(code, known, with_scripts) or members(code, known)
                    related = ", ".join(other for other in names if kin and kinship(other) == kin)
                    near = f"; of the same group ({kin[1]}) are {related}" if kin and related else nearest(code, names)
                    if choices:
                        near = f"; name which it is: {', '.join(choices)}"
                    raise BackboneError(
                        f"direction {direction}: the backbone has no language {code!r}{near}; it has {', '.join(names)}"
                    )

    def language_id(self, language: str) -> int:
        """Return the id of a language's token; raise KeyError without one."""
        return self.language_ids[self._known(language)]

    def language_code(self, language: str) -> str:
        """Return the tokenizer's own code of a language; raise KeyError without one."""
        return self.language_codes[self._known(language)]

    def _known(self, language: str) -> str:
        return known_as(language, self._languages, self._with_scripts) or language

    def before_source(self, direction: Direction) -> list[int]:
        """Return the ids that stand before the pieces of every source sentence."""
        return [self.language_id(direction.source)]

    def room(self, direction: Direction, max_tokens: int) -> int:
        """Return how many pieces of a source sentence `encode_source` keeps."""
        return max(0, max_tokens - 1 - len(self.before_source(direction)))

    def encode_source(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        """Return the input ids of each source sentence, at most `max_tokens`; a prompt around the sentence may come on top."""
        before, room = self.before_source(direction), self.room(direction, max_tokens)
        return [[*before, *ids[:room], self.end_id] for ids in self.pieces(sentences)]

    def encode_target(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        """Return the ids to be predicted for each target sentence, its end included; at most `max_tokens`."""
        before = [self.language_id(direction.target)] if self.begins_with_target else []
        return [[*before, *ids[: max_tokens - 1 - len(before)], self.end_id] for ids in self.pieces(sentences)]

    def first_id(self, direction: Direction) -> int | None:
        """Return the token that every translation must begin with; None if any token may begin it."""
        return self.language_id(direction.target) if self.begins_with_target else None

    def as_text(self, sentence: str, direction: Direction) -> str:
        """Return the text from which the tokenizer alone, set to the direction, makes the same ids as `encode_source`."""
        return sentence

    def pieces(self, sentences: Sequence[str], written: bool = False) -> list[list[int]]:
        """Return each sentence's ids, no special tokens added. written: as target text (some tokenizers differ)."""
        known = self._remembered
        new = list(dict.fromkeys(sentence for sentence in sentences if (sentence, written) not in known))
        if not new:
            return [known[sentence, written].tolist() for sentence in sentences]
        cut = dict(zip(new, self._cut(new, written), strict=True))
        for sentence, ids in cut.items():
            if (size := max(len(ids), len(sentence) // 4, 1)) <= self._free:
                known[sentence, written] = array("i", ids)
                self._free -= size
        return [cut[sentence] if sentence in cut else known[sentence, written].tolist() for sentence in sentences]

    def _cut(self, sentences: list[str], written: bool) -> list[list[int]]:
        """Return the tokenizer's ids of one or more sentences."""
        ids: list[list[int]] = self.tokenizer(sentences, add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Return the text of each row of ids, without special tokens."""
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]


class TextCodec(Codec):
    """A tokenizer for masked-language modelling, with a mask token and without languages."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        begins = tokenizer.cls_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        self.start_id, self.mask_id = int(begins), int(tokenizer.mask_token_id)
        self.special_ids = frozenset(int(number) for number in tokenizer.all_special_ids)
        self._size = len(tokenizer)

    def _cut(self, sentences: list[str], written: bool) -> list[list[int]]:
        """Return the ids of each sentence. Text that spells a special token, such as "[MASK]" in a note, is text, if need be unknown."""
        cut: list[list[int]] = self.tokenizer(sentences, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [[self.tokenizer.unk_token_id if piece in self.special_ids else piece for piece in ids] for ids in cut]

    def any_piece(self, rng: Random) -> int:
        """Draw any id except those of special tokens."""
        while (drawn := rng.randrange(self._size)) in self.special_ids:
            pass
        return drawn
