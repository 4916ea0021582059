"""A finished run as a translator: a site's own tensors, or the clusters' for any direction."""

from pathlib import Path
from typing import Self

from fedlingua.config import Settings
from fedlingua.evaluation.decode import translate
from fedlingua.exchange.tensor_sets import Tensors, check_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.languages import Direction
from fedlingua.trained import Trained, check_translates


class Translator:
    """Translates in one direction with fixed tensors; `tensors = None` is the base."""

    def __init__(self, settings: Settings, trainable: Trainable, tensors: Tensors | None, direction: Direction) -> None:
        self.settings, self.trainable, self.direction = settings, trainable, direction
        trainable.backbone.codec.check([direction])
        self.is_base = tensors is None
        if tensors is not None:
            write_tensors(trainable.model, check_tensors(tensors, trainable.trained))

    @classmethod
    def of(cls, trained: Trained, where: Path, backbone: str = "") -> Self:
        """What was trained, wherever it came from. where: that, for the message. backbone: where it lies, if not where its name says.

        Raises:
            RunError: it does not translate, or the backbone has changed since. BackboneError: it cannot be loaded.
        """
        check_translates(trained.settings, where)
        trainable = trained.trainable(backbone=backbone) if backbone else trained.trainable()
        return cls(trained.settings, trainable, trained.tensors, trained.direction)

    @classmethod
    def of_site(cls, run_dir: Path, site: str) -> Self:
        """What `site` uses after the run; raises what `Trained.of_site` and `of` do."""
        return cls.of(Trained.of_site(run_dir, site), run_dir)

    @classmethod
    def of_delivery(cls, folder: Path) -> Self:
        """What a deployed site was sent at a run's end; raises what `Trained.of_delivery` and `of` do."""
        return cls.of(Trained.of_delivery(folder), folder)

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction) -> Self:
        """Any direction, held by a site or not; raises what `Trained.of_direction` and `of` do."""
        return cls.of(Trained.of_direction(run_dir, direction), run_dir)

    def translate(self, sentences: list[str]) -> list[str]:
        """One translation a sentence, in order; empty ones stay empty."""
        model, codec, settings = self.trainable.model, self.trainable.backbone.codec, self.settings
        lengths = (settings.beam, settings.max_tokens, settings.max_decode_tokens)
        if self.is_base:
            with self.trainable.as_base():
                return translate(model, codec, sentences, self.direction, *lengths)
        return translate(model, codec, sentences, self.direction, *lengths)
