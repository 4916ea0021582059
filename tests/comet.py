"""A tiny COMET checkpoint with random weights, in the layout of the published ones, made once in COMET's own environment.

That environment is 1.2 GB, and no test makes it: `fedlingua score --metric comet` does, and where it is made these tests run.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from fedlingua.common.cache import cache_dir, making
from fedlingua.desk.pretraining.demo import demo_encoder
from fedlingua.evaluation.comet.environment import comet_python, is_ready

# Run by the environment's own Python.
MAKE = """
import sys
from pathlib import Path

import torch
import yaml
from comet.models import RegressionMetric
from pytorch_lightning import Trainer

encoder, to = sys.argv[1:]
torch.manual_seed(7)
model = RegressionMetric(pretrained_model=encoder, load_pretrained_weights=False, hidden_sizes=[16, 8])
folder = Path(to)
(folder / "checkpoints").mkdir(parents=True)
(folder / "hparams.yaml").write_text(yaml.safe_dump(dict(model.hparams)))
trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.strategy.connect(model)
trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)
"""


def needs_comet() -> None:
    """Skip the test where COMET's environment is not made."""
    if not is_ready():
        pytest.skip("COMET's environment is not made on this machine")


def tiny_checkpoint() -> Path:
    """The checkpoint's file; kept in the cache, since making it takes COMET's own start. Where COMET is not, the test is skipped."""
    needs_comet()
    encoder = demo_encoder()
    directory = cache_dir() / "comet" / f"tiny-{encoder.name}"
    with making(directory):
        if not directory.is_dir():
            aside = directory.with_name(f".{directory.name}")
            shutil.rmtree(aside, ignore_errors=True)
            subprocess.run(
                [str(comet_python(print)), "-I", "-c", MAKE, str(encoder), str(aside)], check=True, capture_output=True
            )
            aside.rename(directory)
    return directory / "checkpoints" / "model.ckpt"
