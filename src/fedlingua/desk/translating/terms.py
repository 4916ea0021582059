"""Bring terms of a glossary into translations by a bonus on the scores of their pieces, no larger than needed.

A sentence is first translated as usual. If the translation lacks a term, the sentence is translated again, with a bonus on the piece
that begins the term. The piece that continues a begun term gets the score of the best next piece. A piece that breaks the term off
loses the bonus, as does one that makes a longer word of it (shallow fusion with a phrase list, as in Zhao et al. 2019). A larger bonus
replaces a translation only if it has more of the terms. transformers has removed its constrained beam search.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import regex
import torch
from torch import Tensor
from transformers import LogitsProcessor

from fedlingua.backbones.codec import Codec
from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, without_spaces
from fedlingua.desk.translating.glossary import Term, folded, pattern, read_glossary

BONUSES = (3.0, 6.0, 12.0)
"""In nats, tried one after the other."""
_BEFORE = "。"
"""After this text a piece begins no word."""


@dataclass
class TermCount:
    """Number of terms in the sources, and of those translated right, without the glossary and with it."""

    asked: int = 0
    without: int = 0
    right: int = 0


@dataclass(frozen=True)
class Terms:
    """A glossary ready for a model.

    Attributes:
        terms: Folded source -> term.
        pieces: Folded source -> ids of its translation.
        continuing: Ids of pieces that continue a word; empty for a language without spaces.
        before: The number of tokens before a translation: the start token and, if the model has one, the language.
        remarks: Which lines of the file are not used, and why.
        bonus: In nats, as the guide of `decode.translate` adds it.
    """

    direction: Direction
    terms: dict[str, Term]
    pieces: dict[str, list[int]]
    continuing: Tensor
    before: int
    remarks: list[str]
    bonus: float = 0.0
    count: TermCount = field(default_factory=TermCount)

    @classmethod
    def read(cls, path: Path, direction: Direction, codec: Codec) -> Self:
        """Read a glossary for a tokenizer; a translation that the tokenizer cannot write is left out, with a remark that names the line.

        Raises:
            CorpusError, ConfigError: As `read_glossary`; CorpusError, too, if no translation can be written; ConfigError, too, if the
                model is decoder-only, whose pieces depend on what is before them.
        """
        if codec.is_causal:
            raise ConfigError(
                f"--terms {path}: the run's backbone is a decoder-only model; terms need one with an encoder and a decoder, such as "
                "M2M-100, NLLB, mBART-50, Marian or T5; leave --terms out"
            )
        listed, remarks = read_glossary(path, direction)
        terms, pieces = {}, {}
        before = codec.pieces([_BEFORE], written=True)[0]
        within = codec.pieces([_BEFORE + term.target for term in listed], written=True)
        alone = codec.pieces([term.target for term in listed], written=True)
        for term, ids, inside in zip(listed, alone, within, strict=True):
            if codec.tokenizer.unk_token_id in ids or folded(codec.decode([ids])[0]) != folded(term.target):
                remarks.append(f"{path}, line {term.line}: the backbone's tokenizer cannot write the translation; it is left out")
                continue
            key = folded(term.source)
            terms[key] = term
            # Without spaces, a term inside a sentence hardly ever has the pieces that it has at its start.
            cut = without_spaces(direction.target) and inside[: len(before)] == before
            pieces[key] = inside[len(before) :] if cut else ids
        if not terms:
            raise CorpusError(
                f"{path}: the backbone's tokenizer can write none of {len(listed)} translations; give another glossary"
            )
        every = [] if without_spaces(direction.target) else list(range(len(codec.tokenizer)))
        tokens = codec.tokenizer.convert_ids_to_tokens(every)
        continuing = torch.tensor([number for number, token in enumerate(tokens) if token[:1].isalnum()], dtype=torch.long)
        before_any = 1 if codec.first_id(direction) is None else 2
        return cls(direction, terms, pieces, continuing, before_any, remarks)

    @cached_property
    def _sources(self) -> regex.Pattern[str]:
        return pattern(list(self.terms), self.direction.source)

    def of(self, sentence: str) -> list[str]:
        """Return the keys of the terms in a source sentence, each once; of overlapping terms, the longest."""
        return list(dict.fromkeys(self._sources.findall(folded(sentence))))

    def right(self, keys: Sequence[str], translation: str) -> list[str]:
        """Return those keys whose translation is in `translation`."""
        text = folded(translation)
        return [key for key in keys if pattern([folded(self.terms[key].target)], self.direction.target).search(text)]

    def translate(self, sentences: Sequence[str], translate: Callable[[list[str], Sequence["Terms"]], list[str]]) -> list[str]:
        """Translate with as many terms as possible, and count them. translate: sentences and further guides -> translations."""
        translations, keys = translate(list(sentences), []), [self.of(sentence) for sentence in sentences]
        right = [len(self.right(*each)) for each in zip(keys, translations, strict=True)]
        self.count.asked += sum(map(len, keys))
        self.count.without += sum(right)
        for bonus in BONUSES:
            lacking = [number for number, asked in enumerate(keys) if right[number] < len(asked)]
            tried = translate([sentences[number] for number in lacking], [replace(self, bonus=bonus)]) if lacking else []
            for number, translation in zip(lacking, tried, strict=True):
                if (more := len(self.right(keys[number], translation))) > right[number]:
                    translations[number], right[number] = translation, more
        self.count.right += sum(right)
        return translations

    def over(self, sentences: Sequence[str], beam: int) -> LogitsProcessor:
        """Return the processor that adds the bonus: a guide of `decode.translate`."""
        pieces = [[self.pieces[key] for key in self.of(sentence)] for sentence in sentences]
        return _Bonus(pieces, beam, self.bonus, self.continuing, self.before)


class _Bonus(LogitsProcessor):
    """Adds the bonus. pieces: the ids of each sentence's terms. continuing: ids that would make a longer word of a term. before: the
    number of tokens before a translation."""

    def __init__(self, pieces: Sequence[Sequence[list[int]]], beam: int, bonus: float, continuing: Tensor, before: int) -> None:
        self.pieces, self.beam, self.bonus, self.continuing, self.before = pieces, beam, bonus, continuing, before

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the changed scores. input_ids: (rows, len). scores: (rows, vocabulary)."""
        scores, best = scores.clone(), scores.amax(dim=1)
        for row, ids in enumerate(input_ids.tolist() if input_ids.shape[1] >= self.before else ()):
            missing = [term for term in self.pieces[row // self.beam] if not _holds(ids, term)]
            begun = max((_begun(ids, term) for term in missing), default=0)
            if begun:
                scores[row] -= self.bonus
            elif any(ids[-len(term) :] == term for term in self.pieces[row // self.beam]):
                scores[row, self.continuing.to(scores.device)] -= self.bonus
            for term in missing:
                scores[row, term[0]] += self.bonus
            for term in missing:
                if begun and _begun(ids, term) == begun:
                    scores[row, term[begun]] = best[row]
        return scores


def _holds(ids: list[int], term: list[int]) -> bool:
    return any(ids[first : first + len(term)] == term for first in range(len(ids) - len(term) + 1))


def _begun(ids: list[int], term: list[int]) -> int:
    """Return how many of a term's first pieces, fewer than all, `ids` ends with."""
    return next((number for number in range(min(len(term) - 1, len(ids)), 0, -1) if ids[-number:] == term[:number]), 0)
