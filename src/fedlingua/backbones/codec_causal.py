"""Codec of decoder-only models: a prompt with the source, then the translation, up to the end token. The prompt is the
tokenizer's own chat template if it has one, else two lines that begin with the languages' names."""

from collections.abc import Sequence
from functools import cached_property

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction, language_name

_PROBE = "\u2063"  # placeholder of the source; occurs in no text
_DAY = "{% macro strftime_now(form) %}26 Jul 2024{% endmacro %}\n"
"""Begins every chat template. Llama 3's prints the date, by which the same sentence would be another text every day; this is the day that
it prints where it cannot ask for the date. The line break is one that transformers' Jinja drops after a block."""


class CausalCodec(Codec):
    """A decoder-only model's tokenizer, which does not list its languages."""

    is_causal, begins_with_target = True, False

    def room(self, direction: Direction, max_tokens: int) -> int:
        return max_tokens  # the prompt comes on top

    def encode_source(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        cut = [
            sentence if len(ids) <= max_tokens else self.decode([ids[:max_tokens]])[0]
            for sentence, ids in zip(sentences, self.pieces(sentences), strict=True)
        ]
        prompts = [self.as_text(sentence, direction) for sentence in cut]
        if not prompts:
            return []
        # A chat template already includes the tokens that begin a text.
        ids: list[list[int]] = self.tokenizer(prompts, add_special_tokens=not self._chats)["input_ids"]
        return [list(of_prompt[:-1] if of_prompt[-1] == self.end_id and not self._chats else of_prompt) for of_prompt in ids]

    def encode_target(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        tail = self.as_text(_PROBE, direction).partition(_PROBE)[2]
        before = super().pieces([tail])[0]
        after = super().pieces([f"{tail}{'' if self._chats else ' '}{sentence.strip()}" for sentence in sentences])
        return [[*ids[len(before) :][: max_tokens - 1], self.end_id] for ids in after]

    def as_text(self, sentence: str, direction: Direction) -> str:
        source, target = language_name(direction.source), language_name(direction.target)
        if not self._chats:
            return f"{source}: {sentence}\n{target}:"
        asked = [{"role": "user", "content": f"Translate from {source} into {target}:\n{sentence}"}]
        # Without enable_thinking=False Qwen3's template leaves room for reasoning; other templates ignore it.
        how = {"chat_template": _DAY + self.tokenizer.get_chat_template(), "enable_thinking": False}
        return str(self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, **how))

    @cached_property
    def _chats(self) -> bool:
        return bool(self.tokenizer.chat_template)
