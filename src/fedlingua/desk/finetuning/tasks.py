"""The two tasks from data to result: tagging entities, and labelling marked mentions.

The result is finetuning.json, the scored model, and its predictions, which are for the user only. `model/` is a plain model of
transformers. A model with adapters is stored in `model-with-adapters/` instead, because transformers alone would load it without them;
`load_encoder` and `fedlingua finetune --encoder` load them too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedlingua.common.files import check_new_folder
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.desk.finetuning.encoder import load_encoder
from fedlingua.desk.finetuning.encoder_of_run import save_with_adapters
from fedlingua.desk.finetuning.examples import add_markers, pair_examples, predicted_tags, tagging_examples
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Epoch, Example, answers, best_epoch, fine_tune
from fedlingua.desk.finetuning.scores import Scores, label_scores, tagging_scores
from fedlingua.desk.finetuning.settings import FineTuning, read_annotated
from fedlingua.desk.pace import Pace
from fedlingua.runs.folder import json_text, library_versions, replace_text

FILE = "finetuning.json"
MODEL, WITH_ADAPTERS = "model", "model-with-adapters"
LIBRARIES = ("tokenizers", "nervaluate", "scikit-learn")
"""Packages whose versions are recorded besides those of every run, because ids and scores depend on them."""


@dataclass(frozen=True)
class Setting:
    """The encoder to fine-tune, and where.

    Args:
        encoder: a directory in transformers' layout.
        max_tokens, name: as in `load_encoder`.
        layout: the layout of tagged text.
        note: receives messages about progress.
    """

    encoder: Path
    data: Path
    to: Path
    max_tokens: int | None = None
    device: str = "cpu"
    threads: int = 1
    name: str = ""
    note: Callable[[str], None] = lambda text: None
    layout: str = "iob"


def finetune(task: str, where: Setting, how: FineTuning, report: Callable[[Epoch], None]) -> dict[str, Any]:
    """Fine-tune an encoder for a task, "ner" or "pairs", score dev and test by the best epoch's weights, and write the folder.

    Returns:
        The content of finetuning.json: figures and names, no text.

    Raises:
        ConfigError, CorpusError, BackboneError: before anything trains.
    """
    started = time.monotonic()
    check_new_folder(where.to, "--to")
    where.to.mkdir(parents=True, exist_ok=True)
    folder = where.to.resolve()
    corpus: Any = read_annotated(task, where.data, where.layout)
    labels, sizes = corpus.labels, corpus.sizes()
    torch.set_num_threads(where.threads)
    encoder = load_encoder(where.encoder, task, labels, how.seed, where.max_tokens, where.device, where.name)
    pad_id = int(encoder.tokenizer.pad_token_id or 0)
    examples: dict[Split, list[Example]] = {}
    if task == "pairs":
        add_markers(encoder, how.seed)
    for split in SPLITS:
        if task == "ner":
            examples[split] = tagging_examples(corpus.splits[split], labels, encoder)
        else:
            examples[split], sizes[split]["shortened"] = pair_examples(corpus.splits[split], labels, encoder)

    def predicted(split: Split) -> list[Any]:
        answered = answers(encoder.model, examples[split], pad_id, how)
        tags = task == "ner"
        return predicted_tags(corpus.splits[split], answered, labels) if tags else [labels[number] for [number] in answered]

    def score(split: Split, predictions: list[Any]) -> Scores:
        if task == "ner":
            return tagging_scores([sentence.tags for sentence in corpus.splits[split]], predictions)
        return label_scores([marked.label for marked in corpus.splits[split]], predictions)

    def dev_f1() -> float:
        return float(score("dev", predicted("dev"))["micro_f1"])

    with Pace(where.note) as pace:
        epochs = fine_tune(encoder.model, examples["train"], pad_id, how, dev_f1, report, pace)
        final: dict[Split, list[Any]] = {"dev": predicted("dev"), "test": predicted("test")}
    model = WITH_ADAPTERS if encoder.adapters else MODEL
    layout = {"layout": where.layout} if task == "ner" else {}
    settings = {"max_tokens": encoder.max_tokens, **layout, "device": where.device, "threads": where.threads}
    about: dict[str, Any] = {
        "task": task,
        "data": where.data.resolve().name,
        "encoder": {"name": encoder.name, "fingerprint": encoder.fingerprint},
        "model": model,
        "seed": how.seed,
        "settings": {**asdict(how), **settings},
        "labels": labels,
        "sizes": sizes,
        "epochs": [
            {"epoch": epoch.number, "train_loss": epoch.loss, "dev_micro_f1": epoch.dev_f1, "seconds": round(epoch.seconds, 1)}
            for epoch in epochs
        ],
        "best_epoch": best_epoch(epochs).number,
        **{split: score(split, predictions) for split, predictions in final.items()},
        "versions": {**library_versions(), **{library: version(library) for library in LIBRARIES}},
        "seconds": round(time.monotonic() - started, 1),
    }
    if encoder.adapters:
        save_with_adapters(encoder.model, encoder.adapters, folder / model)
    else:
        encoder.model.save_pretrained(folder / model)
    encoder.tokenizer.save_pretrained(folder / model)
    rows = _rows(corpus.splits["test"], final["test"])
    replace_text(folder / "predictions.tsv", "".join("\t".join(row) + "\n" for row in rows))
    replace_text(folder / FILE, json_text(about))  # written last: if it exists, the folder is complete
    return about


def _rows(texts: Sequence[Any], predictions: Sequence[Any]) -> Iterator[Sequence[str]]:
    """Yield token, gold tag and predicted tag for each token of a sentence, and an empty row after it; for a marked text both labels."""
    for text, prediction in zip(texts, predictions, strict=True):
        if isinstance(text, Tagged):
            yield from zip(text.tokens, text.tags, prediction, strict=True)
            yield ()
        else:
            yield text.label, prediction
