"""A finished run to audit: four sites whose adapters are averaged together."""

from pathlib import Path
from typing import Any

import pytest

from fedlingua.exchange.trainable import build_trainable
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.experiment import default_run_config
from fedlingua_lab.audit.retrained import Retrained
from fedlingua_lab.audit.subject import Subject
from tests.federations import FOUR_SITES
from tests.in_process import run

CONFIG: dict[str, Any] = {"batch-size": 8, "accumulation": 1, "beam": 1, "max-tokens": 32, "max-decode-tokens": 16, "rounds": 2}


@pytest.fixture(scope="session")
def audited(least_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two rounds; the checkpoints of both are stored."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "four.toml").write_text(FOUR_SITES)
    where = {"backbone": str(least_backbone), "federation": str(folder / "four.toml")}
    how = {"method": "adapter-fed", "adapter.dim": 4, "keep.choose": False, "send.code": "none"}
    return run({**default_run_config(), **CONFIG, **where, **how}, folder / "run")[0]


@pytest.fixture
def again(audited: RunFolder) -> Retrained:
    """The first round of the first site."""
    subject = Subject.of(audited.directory)
    return Retrained(subject, build_trainable(subject.settings))
