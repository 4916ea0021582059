"""What personalization stores in a site's folder: its own model, the interpolated one, and a file that says how they were made."""

import math
from collections.abc import Sequence
from typing import Any

from fedlingua.desk.personalization.personalize import Personalized, phase_settings
from fedlingua.desk.personalization.settings import Personalizing
from fedlingua.desk.personalization.start import Start
from fedlingua.exchange.tensors import save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import json_text, library_versions, replace_text

FOLDER = "personal"
FILE = "personalization.json"
MOST_POINTS = 200
"""Of alpha's path, besides its end."""


def store(start: Start, site: str, trainable: Trainable, how: Personalizing, result: Personalized) -> dict[str, Any]:
    """Write all of it, personalization.json last: where it is, all is. Returns what that file says."""
    run, settings, own = start.run.about, phase_settings(how, start.settings), result.choice["candidates"]["own"]
    folder = start.run.folder.directory / "sites" / site / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)  # of an earlier time, whose tensors are about to go
    save_tensors(result.personal, folder / "personal.safetensors")
    save_tensors(result.interpolated, folder / "interpolated.safetensors")
    save_tensors(result.final, folder / "kept.safetensors")
    about = {
        "site": site,
        "direction": str(start.texts[site][site].direction),
        "run": start.run.folder.directory.name,
        "run_id": run.get("id"),
        "task": start.settings.task,
        "method": start.settings.method,
        "config_hash": start.settings.hash(),
        "fingerprint": trainable.fingerprint,
        "round": start.number,
        "seed": how.seed_of(start.settings),
        "epochs": own["best"],
        "optimizer": settings.optimizer,
        "learning_rate": settings.step_learning_rate,
        "alpha_rate": how.alpha_rate,
        "choice": {key: value for key, value in result.choice.items() if key != "seconds"},
        "apfl": {"alpha": result.alphas["apfl"], "dev_loss": result.apfl_dev_loss, "path": thinned(result.path)},
        "sweep": [{"alpha": alpha, "dev_loss": loss} for alpha, loss in result.sweep.items()],
        "chosen_alpha": result.alphas["chosen"],
        "test": dict(result.test),
        "test_split": dict(result.about_test),
        "versions": library_versions(),
        "seconds": round(result.seconds, 3),
    }
    replace_text(folder / FILE, json_text(about))
    return about


def thinned(path: Sequence[float]) -> list[list[float]]:
    """[step, alpha] of a path: every one of a short path, evenly spaced ones of a long one, and always the last."""
    last = len(path) - 1
    stride = max(1, math.ceil(last / MOST_POINTS))
    return [[step, path[step]] for step in dict.fromkeys([*range(0, last, stride), last])]
