"""A trained model that translates: a site's own, or the clusters' for any direction."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.desk.models import RunModels, TrainedModel, check_translates
from fedlingua.exchange.tensors import Tensors, check_tensors

MOST_BEAMS = 64


@dataclass(frozen=True)
class Decoding:
    """How sentences are translated; None takes the run's.

    Attributes:
        max_tokens: Of a source, which is cut there.
        max_new_tokens: Of a translation.
        most: Sentences of one batch; 0: as many as fit.
    """

    beam: int | None = None
    max_tokens: int | None = None
    max_new_tokens: int | None = None
    most: int = 0

    def check(self) -> None:
        """Refuse a number out of range by a ConfigError."""
        for option, value, least, highest in (
            ("beam", self.beam, 1, MOST_BEAMS),
            ("max-tokens", self.max_tokens, 3, None),
            ("max-decode-tokens", self.max_new_tokens, 1, None),
            ("batch", self.most, 0, None),
        ):
            if value is not None and (value < least or (highest is not None and value > highest)):
                wanted = f"{least} to {highest}" if highest is not None else f"{least} or more"
                raise ConfigError(f"--{option} {value}; wanted {wanted}")


class Translator:
    """A backbone in memory with the tensors of one model in it."""

    def __init__(self, model: TrainedModel, decoding: Decoding | None = None, backbone: str = "") -> None:
        """
        Args:
            model: what translates, until `use` takes another of the same run.
            backbone: where it lies, if not where its name says.

        Raises:
            RunError: The model does not translate, its tensors are gone, or the backbone has changed since.
            BackboneError: The backbone cannot be loaded, or has no such language.
            ConfigError: Decoding asks for what cannot be.
        """
        from fedlingua.backbones.layouts import most_tokens

        decoding = decoding or Decoding()
        decoding.check()
        check_translates(model.settings, model.owner)
        tensors = model.load() if model.load else {}  # what is gone is reported before the backbone loads
        self.settings, self.trainable = model.settings, model.trainable(backbone)
        self.beam = decoding.beam or self.settings.beam
        self.max_tokens = decoding.max_tokens or self.settings.max_tokens
        self.max_new_tokens = decoding.max_new_tokens or self.settings.max_decode_tokens
        self.most = decoding.most
        positions = most_tokens(self.trainable.model)
        for option, value in (("max-tokens", self.max_tokens), ("max-decode-tokens", self.max_new_tokens)):
            if positions is not None and value > positions:
                raise ConfigError(
                    f"--{option} {value}: backbone = {self.settings.backbone!r} has positions for {positions} tokens; give fewer"
                )
        self._key: tuple[str, ...] = ()
        self.use(model, lambda _: tensors)

    def use(self, model: TrainedModel, load: Callable[[TrainedModel], Tensors]) -> None:
        """Translate with another model of the run. load: reads its tensors, where they are not the ones in use.

        Raises:
            BackboneError: the backbone has no such language. ExchangeError: the tensors do not fit on it.
        """
        from fedlingua.exchange.tensor_sets import write_tensors

        self.trainable.backbone.codec.check([model.direction])
        if model.key != self._key and model.load is not None:
            self._key = ()  # should it break off, nobody takes what is half there for anything
            write_tensors(self.trainable.model, check_tensors(load(model), self.trainable.whole))
            self._key = model.key
        self.model = model

    @property
    def direction(self) -> Direction:
        return self.model.direction

    @property
    def is_base(self) -> bool:
        """Whether it translates as before any training."""
        return self.model.load is None

    @classmethod
    def of_site(cls, run_dir: Path, site: str, decoding: Decoding | None = None) -> Self:
        """As `site` translates after the run; raises what `RunModels.of_site` does, and making a translator."""
        return cls(RunModels(run_dir).of_site(site), decoding)

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction, decoding: Decoding | None = None) -> Self:
        """For any direction; raises what `RunModels.of_direction` does, and making a translator."""
        return cls(RunModels(run_dir).of_direction(direction), decoding)

    def is_cut(self, sentences: list[str]) -> list[bool]:
        """Which of the sentences are longer than `max_tokens`, language and end included, so that their rest would not be read."""
        texts = [sentence.strip() for sentence in sentences]
        return [len(pieces) + 2 > self.max_tokens for pieces in self.trainable.backbone.codec.pieces(texts)]

    def translate(self, sentences: list[str]) -> list[str]:
        """One translation a sentence, in order, each on one line; empty ones stay empty."""
        from fedlingua.evaluation.decode import translate

        with self.trainable.as_base() if self.is_base else nullcontext():
            translations = translate(
                self.trainable.model,
                self.trainable.backbone.codec,
                sentences,
                self.direction,
                self.beam,
                self.max_tokens,
                self.max_new_tokens,
                self.most,
            )
        # A tokenizer can know pieces that are line breaks.
        return [" ".join(text.split("\n")).replace("\r", " ") if "\n" in text or "\r" in text else text for text in translations]
