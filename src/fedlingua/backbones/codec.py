"""Sentences to subword ids and back, the same for every M2M-100-like and mBART-50-like tokenizer, and for those of encoders."""

from collections.abc import Iterable, Sequence
from random import Random

from transformers import PreTrainedTokenizerBase

from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction, kinship, known_as, nearest


class Codec:
    """A tokenizer seen from translation: `[language] pieces [end]` in, text out.

    Both backbones write the language before the sentence on either side (Fan et al. 2020; Tang et al. 2020).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        codes: dict[str, int] = getattr(tokenizer, "lang_code_to_id", {})
        # mBART-50 writes "de_DE" and M2M-100 "de": what stands before the underscore is the language.
        self.language_ids = {code.split("_")[0]: int(number) for code, number in codes.items()}
        self.language_codes = {code.split("_")[0]: code for code in codes}
        self.pad_id = int(tokenizer.pad_token_id)
        self.end_id = int(tokenizer.eos_token_id)

    def check(self, directions: Iterable[Direction]) -> None:
        """Raise BackboneError for a direction that the backbone has no language token for."""
        for direction in directions:
            for code in (direction.source, direction.target):
                if known_as(code, self.language_ids) is None:
                    kin, known = kinship(code), sorted(self.language_ids)
                    related = ", ".join(other for other in known if kin and kinship(other) == kin)
                    near = f"; of the same group ({kin[1]}) are {related}" if kin and related else nearest(code, known)
                    raise BackboneError(
                        f"direction {direction}: the backbone has no language {code!r}{near}; it has {', '.join(known)}"
                    )

    def language_id(self, language: str) -> int:
        """Number of a language's token; of zh that of zh-Hant, too."""
        return self.language_ids[known_as(language, self.language_ids) or language]

    def language_code(self, language: str) -> str:
        """The tokenizer's own code of a language."""
        return self.language_codes[known_as(language, self.language_codes) or language]

    def encode(self, sentences: Sequence[str], language: str, max_tokens: int) -> list[list[int]]:
        """Ids of each sentence, cut to at most `max_tokens`, language and end included."""
        return [[self.language_id(language), *ids[: max_tokens - 2], self.end_id] for ids in self.pieces(sentences)]

    def pieces(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of each sentence, nothing added."""
        if not sentences:
            return []
        ids: list[list[int]] = self.tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Text of each row of ids, special tokens left out."""
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]


class TextCodec(Codec):
    """A tokenizer seen from masked-language modelling: it knows no languages, and has a mask."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self.start_id, self.mask_id = int(tokenizer.bos_token_id), int(tokenizer.mask_token_id)
        self.special_ids = frozenset(int(number) for number in tokenizer.all_special_ids)
        self._size = len(tokenizer)

    def check(self, directions: Iterable[Direction]) -> None:
        """Raise BackboneError for a direction that the backbone has no language token for."""

    def any_piece(self, rng: Random) -> int:
        """Any id but those of special tokens."""
        while (drawn := rng.randrange(self._size)) in self.special_ids:
            pass
        return drawn
