"""A finished run as a translator: a site's own tensors, or the clusters' for any direction."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.desk.trained import Trained
from fedlingua.desk.variants import RunVariants, Variant, check_translates
from fedlingua.exchange.tensors import Tensors, check_tensors
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # what a run cannot give is told without torch
    from fedlingua.exchange.trainable import Trainable

MOST_BEAMS = 64


@dataclass(frozen=True)
class Decoding:
    """How sentences are translated. max_tokens: of a source, which is cut there; max_new_tokens: of a translation; most: sentences
    of one batch, 0: as many as fit; None takes the run's."""

    beam: int | None = None
    max_tokens: int | None = None
    max_new_tokens: int | None = None
    most: int = 0

    def check(self) -> None:
        """
        Raises:
            ConfigError: a number out of range.
        """
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
    """A backbone in memory and one variant's tensors in it."""

    def __init__(
        self,
        settings: Settings,
        trainable: "Trainable",
        variant: Variant,
        decoding: Decoding | None = None,
        tensors: Tensors | None = None,
    ) -> None:
        """tensors: the variant's, where they are loaded already.

        Raises:
            BackboneError: it has no such language. ConfigError: decoding asks for what cannot be.
        """
        from fedlingua.backbones.layouts import most_tokens

        decoding = decoding or Decoding()
        decoding.check()
        self.settings, self.trainable = settings, trainable
        self.beam = decoding.beam or settings.beam
        self.max_tokens = decoding.max_tokens or settings.max_tokens
        self.max_new_tokens = decoding.max_new_tokens or settings.max_decode_tokens
        self.most = decoding.most
        positions = most_tokens(trainable.model)
        for option, value in (("max-tokens", self.max_tokens), ("max-decode-tokens", self.max_new_tokens)):
            if positions is not None and value > positions:
                raise ConfigError(
                    f"--{option} {value}: backbone = {settings.backbone!r} has positions for {positions} tokens; give fewer"
                )
        self._written: tuple[str, ...] = ()
        self.use(variant, None if tensors is None else lambda _: tensors)

    def use(self, variant: Variant, load: Callable[[Variant], Tensors] | None = None) -> None:
        """Translate in another direction, or with other tensors, from now on. load: takes the place of the variant's own.

        Raises:
            BackboneError: the backbone has no such language. ExchangeError: the tensors do not fit on it.
        """
        from fedlingua.exchange.tensor_sets import write_tensors

        self.trainable.backbone.codec.check([variant.direction])
        if variant.key != self._written and variant.load is not None:
            self._written = ()  # should it break off, nobody takes what is half there for anything
            tensors = load(variant) if load else variant.load()
            write_tensors(self.trainable.model, check_tensors(tensors, self.trainable.trained))
            self._written = variant.key
        self.variant = variant

    @property
    def direction(self) -> Direction:
        return self.variant.direction

    @property
    def is_base(self) -> bool:
        """Whether it translates as before any training."""
        return self.variant.load is None

    @classmethod
    def of_site(cls, run_dir: Path, site: str, decoding: Decoding | None = None) -> Self:
        """What `site` uses after the run.

        Raises:
            RunError: no such site, a run that did not get that far, or one that trained no translation.
        """
        run = RunVariants(run_dir)
        return cls.of_variant(run, run.of_site(site), decoding)

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction, decoding: Decoding | None = None) -> Self:
        """Any direction, held by a site or not: the encoder cluster nearest to the source, the decoder cluster nearest to the target.

        Raises:
            RunError: a method that leaves nothing at the server, or a run that trained no translation. ConfigError: no cluster for these
                languages.
        """
        run = RunVariants(run_dir)
        return cls.of_variant(run, run.of_direction(direction), decoding)

    @classmethod
    def of_variant(cls, run: RunVariants, variant: Variant, decoding: Decoding | None = None) -> Self:
        """One of a run's variants, on the backbone of the run.

        Raises:
            RunError: the backbone is not the run's. ConfigError: decoding asks for what cannot be.
        """
        (decoding or Decoding()).check()
        tensors = variant.load() if variant.load else None  # what is gone is told before the backbone loads
        return cls(run.settings, run.finished.trainable(), variant, decoding, tensors)

    @classmethod
    def of_trained(cls, trained: Trained, where: Path, decoding: Decoding | None = None, backbone: str = "") -> Self:
        """What was trained, wherever it came from. where: that, for the message. backbone: where it lies, if not where its name says.

        Raises:
            RunError: it does not translate, or the backbone has changed since. BackboneError: it cannot be loaded. ConfigError: decoding
                asks for what cannot be.
        """
        (decoding or Decoding()).check()
        check_translates(trained.settings, where)
        trainable = trained.trainable(backbone=backbone) if backbone else trained.trainable()
        return cls(trained.settings, trainable, trained.variant, decoding)

    @classmethod
    def of_delivery(cls, folder: Path, decoding: Decoding | None = None) -> Self:
        """What a deployed site was sent at a run's end (`folder`: the run's, in the site's state); raises what `of_trained` does."""
        return cls.of_trained(Trained.of_delivery(folder), folder, decoding)

    def is_cut(self, sentences: list[str]) -> list[bool]:
        """Which of the sentences are longer than `max_tokens`, language and end included, so that their rest would not be read."""
        texts = [sentence.strip() for sentence in sentences]
        return [len(pieces) + 2 > self.max_tokens for pieces in self.trainable.backbone.codec.pieces(texts)]

    def translate(self, sentences: list[str]) -> list[str]:
        """One translation a sentence, in order, each on one line; empty ones stay empty."""
        if not self.is_base:
            return self._translated(sentences)
        with self.trainable.as_base():
            return self._translated(sentences)

    def _translated(self, sentences: list[str]) -> list[str]:
        from fedlingua.evaluation.decode import translate

        found = translate(
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
        return [" ".join(text.split("\n")).replace("\r", " ") if "\n" in text or "\r" in text else text for text in found]
