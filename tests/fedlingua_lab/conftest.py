"""Two finished runs to go on from: adapters of a translation model, and a whole encoder."""

from pathlib import Path
from typing import Any

import pytest

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.experiment import default_run_config
from tests.encoders import build_xlmr
from tests.federations import FOUR_SITES
from tests.in_process import run

NOTES = "".join(
    [
        'name = "notes"\n[split]\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n',
        '[[site]]\nname = "hospital"\nlanguage = "es"\nphrasebook = "hospital"\nsentences = 80\n',
        '[[site]]\nname = "court"\nlanguage = "de"\nphrasebook = "court"\nsentences = 64\n',
    ]
)
SHORT: dict[str, Any] = {"batch-size": 8, "accumulation": 1, "beam": 1, "max-tokens": 32, "max-decode-tokens": 16}


@pytest.fixture(scope="session")
def translating(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Four sites, adapters averaged by families."""
    folder = tmp_path_factory.mktemp("translating")
    (folder / "four.toml").write_text(FOUR_SITES)
    config = {
        **default_run_config(),
        "keep.choose": False,
        "send.code": "none",
        **SHORT,
        "backbone": str(tiny_backbone),
        "federation": str(folder / "four.toml"),
    }
    return run({**config, "adapter.dim": 4, "rounds": 5, "method": "adapter-families"}, folder / "run")[0]


@pytest.fixture(scope="session")
def masking(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two sites with notes in one language each; all of a tiny encoder travels, and an optimizer at the server steps."""
    folder = tmp_path_factory.mktemp("masking")
    (folder / "notes.toml").write_text(NOTES)
    backbone = build_xlmr(folder / "encoder")
    config = {
        **default_run_config(),
        "keep.choose": False,
        "send.code": "none",
        **SHORT,
        "backbone": str(backbone),
        "federation": str(folder / "notes.toml"),
    }
    how = {"task": "masked-language", "method": "server-adam", "rounds": 2, "sample.least": 16, "optimizer": "sgd"}
    return run({**config, **how}, folder / "run")[0]
