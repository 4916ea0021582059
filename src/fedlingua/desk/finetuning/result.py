"""What a fine-tuning leaves behind: finetuning.json, the model, and its predictions for the user's own eyes.

What loads is what was scored. `model/` is a plain model of transformers. One with adapters is none, so it lies in `model-with-adapters/`:
transformers alone would load it without them; `load_encoder` and `fedlingua finetune --encoder` put them in again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedlingua.corpora.split import SPLITS
from fedlingua.desk.finetuning.encoder import Encoder
from fedlingua.desk.finetuning.encoder_of_run import save_with_adapters
from fedlingua.desk.finetuning.loop import Epoch, best_epoch
from fedlingua.desk.finetuning.scores import Scores
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.runs.folder import json_text, library_versions, replace_text

FILE = "finetuning.json"
MODEL, WITH_ADAPTERS = "model", "model-with-adapters"
PREDICTIONS = "predictions.tsv"
LIBRARIES = ("tokenizers", "nervaluate", "scikit-learn")
"""Beside those of every run: what ids and scores depend on."""


@dataclass(frozen=True)
class Result:
    """One fine-tuning, done. scores: of dev and test, by the best epoch's weights. data: the folder's name, without its path."""

    task: str
    data: str
    labels: list[str]
    encoder: Encoder
    how: FineTuning
    settings: dict[str, Any]
    sizes: dict[str, Any]
    epochs: list[Epoch]
    scores: dict[str, Scores]
    seconds: float

    @property
    def model(self) -> str:
        return WITH_ADAPTERS if self.encoder.adapters else MODEL

    def as_json(self) -> dict[str, Any]:
        """As finetuning.json holds it: figures and names, no text."""
        return {
            "task": self.task,
            "data": self.data,
            "encoder": {"name": self.encoder.name, "fingerprint": self.encoder.fingerprint},
            "model": self.model,
            "seed": self.how.seed,
            "settings": {**asdict(self.how), "max_tokens": self.encoder.max_tokens, **self.settings},
            "labels": self.labels,
            "sizes": self.sizes,
            "epochs": [
                {
                    "epoch": epoch.number,
                    "train_loss": epoch.loss,
                    "dev_micro_f1": epoch.dev_f1,
                    "seconds": round(epoch.seconds, 1),
                }
                for epoch in self.epochs
            ],
            "best_epoch": best_epoch(self.epochs).number,
            **{split: self.scores[split].as_json() for split in SPLITS if split in self.scores},
            "versions": {**library_versions(), **{library: version(library) for library in LIBRARIES}},
            "seconds": round(self.seconds, 1),
        }


def write_result(folder: Path, result: Result, predictions: Iterable[Sequence[str]]) -> None:
    """Write the model, the test split's predictions, and last finetuning.json: where it is, all is.

    predictions: rows of columns; an empty row is a blank line.
    """
    encoder, directory = result.encoder, folder / result.model
    if encoder.adapters:
        save_with_adapters(encoder.model, encoder.adapters, directory)
    else:
        encoder.model.save_pretrained(directory)
    encoder.tokenizer.save_pretrained(directory)
    replace_text(folder / PREDICTIONS, "".join("\t".join(row) + "\n" for row in predictions))
    replace_text(folder / FILE, json_text(result.as_json()))
