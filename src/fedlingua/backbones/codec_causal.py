"""Decoder-only models: a prompt that holds the source, and the translation after it, up to the end token. The prompt is the tokenizer's
own chat template where it has one, else two lines that begin with the languages' names."""

from collections.abc import Sequence
from functools import cached_property

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction, language_name

_PROBE = "\u2063"  # stands where the source will; in no text


class CausalCodec(Codec):
    """A language model's tokenizer; it does not say which languages it knows."""

    is_causal = True

    def encode_source(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        cut = [
            sentence if len(ids) <= max_tokens else self.decode([ids[:max_tokens]])[0]
            for sentence, ids in zip(sentences, self.pieces(sentences), strict=True)
        ]
        prompts = [self.as_text(sentence, direction) for sentence in cut]
        if not prompts:
            return []
        # A chat's template writes the tokens that begin a text, too.
        ids: list[list[int]] = self.tokenizer(prompts, add_special_tokens=not self._chats)["input_ids"]
        return [list(of_prompt[:-1] if of_prompt[-1] == self.end_id and not self._chats else of_prompt) for of_prompt in ids]

    def encode_target(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        tail = self.as_text(_PROBE, direction).partition(_PROBE)[2]
        before = super().pieces([tail])[0]
        after = super().pieces([f"{tail}{'' if self._chats else ' '}{sentence.strip()}" for sentence in sentences])
        return [[*ids[len(before) :][: max_tokens - 1], self.end_id] for ids in after]

    def first_id(self, direction: Direction) -> int | None:
        return None

    def as_text(self, sentence: str, direction: Direction) -> str:
        source, target = language_name(direction.source), language_name(direction.target)
        if not self._chats:
            return f"{source}: {sentence}\n{target}:"
        asked = [{"role": "user", "content": f"Translate from {source} into {target}:\n{sentence}"}]
        # Qwen3's template leaves room for thoughts unless it is told not to; others take no notice.
        return str(self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, enable_thinking=False))

    @cached_property
    def _chats(self) -> bool:
        return bool(self.tokenizer.chat_template)
