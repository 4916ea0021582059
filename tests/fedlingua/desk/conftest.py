"""Runs of four sites on the tiny backbone, one a method; made once, for whoever only reads them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedlingua.settings.experiment import default_run_config
from tests.federations import FOUR_SITES


@pytest.fixture(scope="session")
def four_sites_run(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Method -> the folder of a run of one round by it, made when it is first asked for; no test changes it."""
    from tests.in_process import run  # Flower's app takes seconds to import

    place = tmp_path_factory.mktemp("runs")
    (place / "four.toml").write_text(FOUR_SITES)
    short = {
        "adapter.dim": 4,
        "batch-size": 8,
        "accumulation": 1,
        "beam": 1,
        "rounds": 1,
        "max-tokens": 32,
        "max-decode-tokens": 16,
    }
    where = {"backbone": str(tiny_backbone), "federation": str(place / "four.toml"), "deadline.phase-s": 30.0}

    def folder(method: str) -> Path:
        if not (place / method).is_dir():
            run(
                {**default_run_config(), "keep.choose": False, "send.code": "none", **short, **where, "method": method},
                place / method,
            )
        return place / method

    return folder
