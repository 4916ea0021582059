"""A completed run, opened from its folder: its run.json, its settings, and the backbone that it was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.runs.folder import RunFolder, run_about
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.experiment import config_of_run

if TYPE_CHECKING:  # a run that is not completed is refused without loading torch
    from fedlingua.exchange.trainable import Trainable


@dataclass(frozen=True)
class CompletedRun:
    """A completed run's folder. about: its run.json."""

    folder: RunFolder
    about: dict[str, Any]
    settings: Settings

    @classmethod
    def of(cls, run_dir: Path) -> Self:
        """Open the folder of a completed run whose settings this version accepts; raise RunError or ConfigError for another."""
        about = run_about(run_dir)
        check_completed(run_dir, about)
        return cls(RunFolder(run_dir), about, stored_settings(run_dir, about))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the backbone that the run was trained on; "" if run.json does not contain it."""
        return str((self.about.get("backbone") or {}).get("fingerprint", ""))

    def trainable(self) -> "Trainable":
        """Load the run's backbone with the modules that its method trains; raises what `same_backbone` does."""
        return same_backbone(self.settings, self.fingerprint)


def check_completed(run_dir: Path, about: Mapping[str, Any]) -> None:
    """Raise RunError if a run is not completed. about: its run.json."""
    if about.get("status") != "completed":
        raise RunError(
            f"{run_dir}: the run is {about.get('status')}, not completed; it is scored at its end: wait for it, or resume it: "
            f"fedlingua run --resume {run_dir}"
        )


def stored_settings(run_dir: Path, about: Mapping[str, Any]) -> Settings:
    """Return the settings in a run.json; raise ConfigError if this version does not accept them."""
    try:
        return settings_of(about["config"], completed=about.get("status") == "completed")
    except ConfigError as error:
        raise ConfigError(f"{run_dir}: its run.json was written by another version of fedlingua, or changed: {error}") from error


def settings_of(config: Mapping[str, Scalar], completed: bool = False) -> Settings:
    """Return the settings that a run was made with, see `config_of_run`; raise ConfigError if this version does not know them."""
    return settings_from(config_of_run(config, completed))


def same_backbone(settings: Settings, wanted: str) -> "Trainable":
    """Load a run's backbone and make it ready to train, provided it has the fingerprint `wanted`.

    Raises:
        RunError: it has another fingerprint. BackboneError: it cannot be loaded.
    """
    from fedlingua.exchange.trainable import build_trainable

    trainable = build_trainable(settings)
    if trainable.backbone.fingerprint != wanted:
        raise RunError(
            f"backbone = {settings.backbone!r} is not the one the run was trained on "
            f"({trainable.backbone.fingerprint[:12]}; wanted {wanted[:12]}); give the run its own backbone"
        )
    return trainable


def no_scores(directory: Path) -> RunError:
    """Return the error for a completed run without its scores."""
    return RunError(f"{directory}: the run is completed, but its scores.json is missing; restore it, or run again")
