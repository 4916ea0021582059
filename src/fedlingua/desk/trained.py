"""What a finished run has trained, as one site uses it or for one direction: tensors, and all that says what they fit on.

A site's come from what was delivered to it; where nothing was, and where no site is asked for, from the clusters of the best round.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedlingua.common.languages import Direction, parse_written
from fedlingua.desk.variants import RunVariants, Variant
from fedlingua.exchange.delivery import delivered
from fedlingua.exchange.tensors import Tensors
from fedlingua.runs.finished import same_backbone, settings_of
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # what a run cannot give is told without torch
    from fedlingua.exchange.trainable import Trainable


@dataclass(frozen=True)
class Trained:
    """Tensors that no model holds yet.

    fingerprint: of the backbone that they fit on. tensors: all that trained; None of a method that trains nothing. direction: of an encoder
    the language of the site's text. site: None where a direction was asked for. number: of the round that they are of; None of no round.
    """

    settings: Settings
    fingerprint: str
    tensors: Tensors | None
    direction: Direction
    site: str | None
    number: int | None

    @classmethod
    def of_site(cls, run_dir: Path, site: str) -> Self:
        """What `site` uses after the run.

        Raises:
            RunError: no such site, or a run that did not get that far.
        """
        run = RunVariants(run_dir, encoders=True)
        return cls._of_variant(run, run.of_site(site))

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction) -> Self:
        """For any direction, held by a site or not: the encoder cluster nearest to the source, the decoder cluster nearest to the target.

        Raises:
            RunError: a method that leaves nothing at the server, or a run that trained no translation. ConfigError: no cluster for these
                languages.
        """
        run = RunVariants(run_dir)
        return cls._of_variant(run, run.of_direction(direction))

    @classmethod
    def of_delivery(cls, folder: Path) -> Self:
        """What a deployed site was sent at a run's end; `folder`: the run's, in the site's state.

        Raises:
            RunError: nothing was delivered there.
        """
        tensors, about = delivered(folder)
        direction = parse_written(about["direction"])
        return cls(
            settings_of(about["settings"]), about["backbone_fingerprint"], tensors, direction, about["site"], about["round"]
        )

    @classmethod
    def _of_variant(cls, run: RunVariants, variant: Variant) -> Self:
        fingerprint = str(run.finished.about["backbone"]["fingerprint"])
        tensors = variant.load() if variant.load else None
        return cls(run.settings, fingerprint, tensors, variant.direction, variant.site, variant.number)

    @property
    def variant(self) -> Variant:
        """As a translator takes it."""
        tensors, whose = self.tensors, self.site or str(self.direction)
        load = None if tensors is None else lambda: tensors
        return Variant(self.direction, self.site, {}, ("given", whose), self.number, load)

    def trainable(self, **changes: Any) -> "Trainable":
        """The backbone with what the run's method trains, as before any training. changes: of the settings, such as `device`.

        Raises:
            RunError: the backbone is not the one that the tensors fit on. BackboneError: it cannot be loaded.
        """
        return same_backbone(replace(self.settings, **changes), self.fingerprint)
