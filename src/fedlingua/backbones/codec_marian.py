"""Codec of Marian models as OPUS-MT publishes them: `pieces [end]`, with one SentencePiece model a side; if there are several
target languages, the target's token `>>fra<<` is before the source (Tiedemann & Thottingal 2020)."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from fedlingua.backbones.codec import Codec
from fedlingua.common.language_codes import bcp47
from fedlingua.common.languages import Direction


class MarianCodec(Codec):
    """A Marian tokenizer; its languages come from its configuration and from tokens `>>xxx<<` of its vocabulary."""

    begins_with_target = False

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start_id: int | None = None) -> None:
        super().__init__(tokenizer, start_id)
        self.reads = _languages(getattr(tokenizer, "source_lang", None))
        self.writes = set(self.language_ids) or _languages(getattr(tokenizer, "target_lang", None))

    @staticmethod
    def tokens_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[str, int]]:
        tokens: list[str] = getattr(tokenizer, "supported_language_codes", [])
        return {token[2:-2]: (token, int(tokenizer.convert_tokens_to_ids(token))) for token in tokens}  # type: ignore[arg-type]

    def before_source(self, direction: Direction) -> list[int]:
        return [self.language_id(direction.target)] if self.language_ids else []

    def encode_target(self, sentences: Sequence[str], direction: Direction, max_tokens: int) -> list[list[int]]:
        return [[*ids[: max_tokens - 1], self.end_id] for ids in self.pieces(sentences, written=True)]

    def as_text(self, sentence: str, direction: Direction) -> str:
        return f"{self.language_code(direction.target)}{sentence}" if self.language_ids else sentence

    def _cut(self, sentences: list[str], written: bool) -> list[list[int]]:
        # Cut off the end token: Marian's tokenizer applies add_special_tokens=False to the source alone.
        given = {"text_target" if written else "text": sentences}
        return [ids[:-1] for ids in self.tokenizer(**given)["input_ids"]]


def _languages(side: str | None) -> set[str]:
    """Return the language of a model's side; nothing for a group, such as roa or ROMANCE, which lists none."""
    from iso_langcodes.iso639_5 import language_group_children

    is_one = side and side.islower() and not language_group_children(side)
    return set(bcp47([side])) if side and is_one else set()
