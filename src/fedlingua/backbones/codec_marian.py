"""Codec of Marian models as OPUS-MT publishes them: `pieces [end]`, with one SentencePiece model a side; if there are several
target languages, the target's token `>>fra<<` is before the source (Tiedemann & Thottingal 2020)."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from fedlingua.backbones.codec import Codec
from fedlingua.common.languages import Direction, normal_code, plain_code


class MarianCodec(Codec):
    """A Marian tokenizer; its languages come from its configuration and from tokens `>>xxx<<` of its vocabulary."""

    begins_with_target = False

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start_id: int | None = None) -> None:
        super().__init__(tokenizer, start_id)
        # Groups, such as roa or ROMANCE, are no language: that side then lists none.
        self.reads = {code} if (code := normal_code(str(getattr(tokenizer, "source_lang", None)))) else set()
        self.writes = set(self.language_ids)
        if not self.writes and (code := normal_code(str(getattr(tokenizer, "target_lang", None)))):
            self.writes = {code}

    @staticmethod
    def codes_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[str, int]]:
        codes: list[str] = sorted(getattr(tokenizer, "supported_language_codes", ()))
        exact = {normal_code(code[2:-2].replace("_", "-")) or plain_code(code[2:-2]): code for code in codes}
        exact = {plain_code(language): code for language, code in reversed(exact.items())} | exact
        return {language: (code, int(tokenizer.convert_tokens_to_ids(code))) for language, code in exact.items()}  # type: ignore[arg-type]

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
