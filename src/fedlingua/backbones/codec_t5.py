"""Codec of T5 and MADLAD-400: `pieces [end]`, with the task before the source: a token `<2fr>` (Kudugunta et al. 2023, §3),
or the words with which T5 was trained to translate (Raffel et al. 2020, §2.4)."""

import re
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from fedlingua.backbones.codec import Codec
from fedlingua.common.language_codes import known_as
from fedlingua.common.languages import Direction


class T5Codec(Codec):
    """A T5 tokenizer. tasks: task_specific_params of the configuration, which has T5's prompts for its directions."""

    begins_with_target = False

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, start_id: int | None = None, tasks: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, start_id)
        named = {re.fullmatch("translation_(\\w+)_to_(\\w+)", name): about for name, about in (tasks or {}).items()}
        self.prompts = {(match[1], match[2]): str(about["prefix"]) for match, about in named.items() if match}
        if not self.language_ids:
            self.reads, self.writes = ({pair[side] for pair in self.prompts} for side in (0, 1))

    @staticmethod
    def tokens_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[str, int]]:
        # MADLAD's <2translate>, <2Latn> and <2CA> are no languages.
        ids: dict[str, int] = tokenizer.get_vocab()
        named = {token: re.fullmatch("<2([a-z]{2,3}(?:_\\w+)?)>", token) for token in ids}
        return {match[1]: (token, int(ids[token])) for token, match in named.items() if match}

    def before_source(self, direction: Direction) -> list[int]:
        return [self.language_id(direction.target)] if self.language_ids else self.pieces([self._prompt(direction)])[0]

    def as_text(self, sentence: str, direction: Direction) -> str:
        return f"{self.language_code(direction.target) if self.language_ids else self._prompt(direction).strip()} {sentence}"

    def _prompt(self, direction: Direction) -> str:
        pair = known_as(direction.source, self.reads), known_as(direction.target, self.writes)
        source, target = (str(code) for code in pair)
        if (source, target) in self.prompts:
            return self.prompts[source, target]
        # Build the prompt of an untrained direction, such as German into French, from the languages' names in trained ones.
        languages = {
            code: words for pair, prompt in self.prompts.items() for code, words in zip(pair, _languages(prompt), strict=True)
        }
        return f"translate {languages[source]} to {languages[target]}: "


def _languages(prompt: str) -> tuple[str, str]:
    match = re.fullmatch(r"translate (.+) to (.+): ?", prompt)
    return (match[1], match[2]) if match else (prompt, prompt)
