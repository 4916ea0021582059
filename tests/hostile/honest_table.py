"""Honest sites of very unlike sizes, in real runs under default settings: no update is left out, scaled down or refused."""

from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.attacks import Attack, Outcome
from tests.hostile.robust_table import config_of
from tests.in_process import rounds, run

TITLE = "Honest sites: every update is taken whole"
SIZES = (60, 120, 600, 6000)
"""Sentences, half of which train: 30 to 3,000."""

RUNS: dict[str, dict[str, Any]] = {
    "adapters": {"method": "adapter-fed"},
    "adapters, the paper's rate": {"method": "adapter-fed", "learning-rate": 0.0},
    "full model, the paper's rate": {"method": "model-fed", "learning-rate": 0.0},
    "LoRA": {"method": "adapter-fed", "tensor-set": "lora"},
    "controllers": {"method": "adapter-fed", "tensor-set": "controllers", "controllers": 1, "learning-rate": 1e-3},
    "AdamW with weight decay": {"method": "adapter-fed", "optimizer": "adamw", "weight-decay": 0.1},
    "linear schedule, smoothed labels": {"method": "adapter-fed", "schedule": "linear", "label-smoothing": 0.1},
    "batches by tokens": {"method": "adapter-fed", "tokens-per-batch": 200},
    "top-k": {"method": "top-k", "learning-rate": 1e-3, "send.share": 0.1},
    "metasend-l": {"method": "metasend-l", "learning-rate": 1e-3},
}
"""What differs from the defaults."""


def played(keys: dict[str, Any], place: Path, sizes: tuple[int, ...] = SIZES) -> Outcome:
    """A round, and what the server finds wrong with any update."""
    folder, _ = run(config_of(place, sizes, rounds=1, **keys), place / "run", num_nodes=1)
    lines = rounds(folder)
    wrong = [f"{failure['site']}: {failure['reason']}" for line in lines for failure in line["failures"]]
    updates = sum("update_norm" in told for line in lines for told in line["sites"].values())
    return Outcome(updates == len(sizes) and not wrong, (wrong or [f"{updates} updates, all taken whole"])[0])


ATTACKS = [Attack(name, partial(played, keys)) for name, keys in RUNS.items()]
