"""An experiment of two sites, as a file."""

import json
from pathlib import Path

import pytest

from fedlingua.settings.config import Scalar
from tests.federations import TWO_SITES


@pytest.fixture
def experiment(least_run_config: dict[str, Scalar], tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    keys = {**least_run_config, "method": "adapter-families", "federation": str(tmp_path / "two.toml")}
    file = tmp_path / "two_sites.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return file
