"""The two tasks from data to result: tagging entities, and labelling marked mentions.

The result is finetuning.json, the scored model, and its predictions, which are for the user only. `model/` is a plain model of
transformers. A model with adapters is stored in `model-with-adapters/` instead, because transformers alone would load it without them;
`load_encoder` and `fedlingua finetune --encoder` load them too.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedlingua.common.files import check_new_folder
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.desk.finetuning.encoder import load_encoder
from fedlingua.desk.finetuning.encoder_of_run import save_with_adapters
from fedlingua.desk.finetuning.examples import add_markers, pair_examples, predicted_tags, tagging_examples
from fedlingua.desk.finetuning.loop import Epoch, Example, answers, best_epoch, fine_tune
from fedlingua.desk.finetuning.scores import Scores, label_scores, tagging_scores
from fedlingua.desk.finetuning.settings import FineTuning, read_annotated
from fedlingua.desk.pace import Pace
from fedlingua.runs.folder import json_text, library_versions, replace_text

FILE = "finetuning.json"
MODEL, WITH_ADAPTERS = "model", "model-with-adapters"
LIBRARIES = ("tokenizers", "nervaluate", "scikit-learn")
"""Packages whose versions are recorded besides those of every run, because ids and scores depend on them."""


def finetune(
    task: str,
    encoder_dir: Path,
    data: Path,
    to: Path,
    how: FineTuning,
    report: Callable[[Epoch], None],
    note: Callable[[str], None] = lambda text: None,
    name: str = "",
    layout: str = "iob",
) -> dict[str, Any]:
    """Fine-tune an encoder for a task, "ner" or "pairs", score dev and test by the best epoch's weights, and write the folder `to`.

    Args:
        encoder_dir: a directory in transformers' layout. name: the encoder's name; "": the directory's.
        note: receives messages about progress.
        layout: the layout of tagged text.

    Returns:
        The content of finetuning.json: figures and names, no text.

    Raises:
        ConfigError, CorpusError, BackboneError: before anything trains.
    """
    started = time.monotonic()
    check_new_folder(to, "--to")
    to.mkdir(parents=True, exist_ok=True)
    folder = to.resolve()
    corpus: Any = read_annotated(task, data, layout)
    labels, sizes = corpus.labels, corpus.sizes()
    torch.set_num_threads(how.threads)
    encoder = load_encoder(encoder_dir, task, labels, how.seed, how.max_tokens, how.device)
    pad_id = int(encoder.tokenizer.pad_token_id or 0)
    examples: dict[Split, list[Example]] = {}
    if task == "pairs":
        add_markers(encoder, how.seed)
    for split in SPLITS:
        if task == "ner":
            examples[split] = tagging_examples(corpus.splits[split], labels, encoder)
        else:
            examples[split], sizes[split]["shortened"] = pair_examples(corpus.splits[split], labels, encoder)

    def judged(split: Split) -> tuple[Scores, list[Sequence[str]]]:
        """Return the scores, and token, gold and predicted tag of each token with an empty row after a sentence, or a text's two labels."""
        texts, answered = corpus.splits[split], answers(encoder.model, examples[split], pad_id, how)
        if task == "pairs":
            gold, predicted = [marked.label for marked in texts], [labels[number] for [number] in answered]
            return label_scores(gold, predicted), [*zip(gold, predicted, strict=True)]
        tags, rows = predicted_tags(texts, answered, labels), list[Sequence[str]]()
        for sentence, tags_of_it in zip(texts, tags, strict=True):
            rows += [*zip(sentence.tokens, sentence.tags, tags_of_it, strict=True), ()]
        return tagging_scores([sentence.tags for sentence in texts], tags), rows

    with Pace(note) as pace:
        epochs = fine_tune(encoder.model, examples["train"], pad_id, how, lambda: judged("dev")[0]["micro_f1"], report, pace)
        (dev_scores, _), (test_scores, rows) = judged("dev"), judged("test")
    model = WITH_ADAPTERS if encoder.adapters else MODEL
    about: dict[str, Any] = {
        "task": task,
        "data": data.resolve().name,
        "encoder": {"name": name or encoder_dir.resolve().name, "fingerprint": encoder.fingerprint},
        "model": model,
        "seed": how.seed,
        "settings": {**asdict(how), "max_tokens": encoder.max_tokens, **({"layout": layout} if task == "ner" else {})},
        "labels": labels,
        "sizes": sizes,
        "epochs": [
            {"epoch": epoch.number, "train_loss": epoch.loss, "dev_micro_f1": epoch.dev_f1, "seconds": round(epoch.seconds, 1)}
            for epoch in epochs
        ],
        "best_epoch": best_epoch(epochs).number,
        "dev": dev_scores,
        "test": test_scores,
        "versions": {**library_versions(), **{library: version(library) for library in LIBRARIES}},
        "seconds": round(time.monotonic() - started, 1),
    }
    if encoder.adapters:
        save_with_adapters(encoder.model, encoder.adapters, folder / model)
    else:
        encoder.model.save_pretrained(folder / model)
    encoder.tokenizer.save_pretrained(folder / model)
    replace_text(folder / "predictions.tsv", "".join("\t".join(row) + "\n" for row in rows))
    replace_text(folder / FILE, json_text(about))  # written last: if it exists, the folder is complete
    return about
