"""A tiny COMET checkpoint with random weights, in the layout of the published ones: made in COMET's own environment, as a script.

python comet_checkpoint.py ENCODER_DIRECTORY TO
"""

import sys
from pathlib import Path

import torch
import yaml
from comet.models import RegressionMetric
from pytorch_lightning import Trainer


def main(encoder: str, to: str) -> None:
    torch.manual_seed(7)
    model = RegressionMetric(
        pretrained_model=encoder, load_pretrained_weights=False, hidden_sizes=[16, 8], layer="mix", batch_size=4
    )
    folder = Path(to)
    (folder / "checkpoints").mkdir(parents=True)
    hparams = {key: list(value) if isinstance(value, tuple) else value for key, value in dict(model.hparams).items()}
    (folder / "hparams.yaml").write_text(yaml.safe_dump(hparams))
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
