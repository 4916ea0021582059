"""Fine-tune an encoder on annotated text by transformers' Trainer, keep the epoch that is best on dev, and score dev and test."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from fedlingua.backbones.parts import is_adapter
from fedlingua.common.errors import RunError
from fedlingua.common.files import json_text, replace_text
from fedlingua.desk.pace import Pace
from fedlingua.runs.folder import library_versions
from fedlingua.training.batches import IGNORED
from fedlingua_lab.finetuning.annotated import OUTSIDE, Texts, labels_of, sizes_of
from fedlingua_lab.finetuning.encoder import Encoder
from fedlingua_lab.finetuning.examples import MARKERS, Place, pair_examples, tagging_examples
from fedlingua_lab.finetuning.scores import label_scores, tagging_scores
from fedlingua_lab.finetuning.settings import FineTuning

Json = dict[str, Any]
FILE = "finetuning.json"
LIBRARIES = ("tokenizers", "accelerate", "nervaluate", "scikit-learn")
"""Packages whose versions are recorded besides those of every run."""
FIXED: Json = {"warmup_steps": 0.1, "weight_decay": 0.01}
"""The rate rises over this share of all steps, then falls linearly to 0; weights decay, biases and norms do not."""


class _Watch(TrainerCallback):
    """Shows every step, reports every epoch, and stops a training that diverged."""

    def __init__(self, how: FineTuning, pace: Pace, report: Callable[[Json], None]) -> None:
        self.how, self.pace, self.report, self.epochs = how, pace, report, list[Json]()

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        self.pace.at(state.global_step, state.max_steps)

    def on_evaluate(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        (trained, measured), epoch = state.log_history[-2:], round(state.epoch)
        if not math.isfinite(trained["loss"] + measured["eval_loss"]):
            raise RunError(
                f"epoch {epoch} diverged at the learning rate {self.how.learning_rate:g}; give a smaller --learning-rate"
            )
        self.epochs.append({"epoch": epoch, "train_loss": trained["loss"], "dev_micro_f1": measured["eval_micro_f1"]})
        self.report(self.epochs[-1])


def finetune(
    layout: str,
    encoder: Encoder,
    texts: Texts,
    to: Path,
    how: FineTuning,
    data: str,
    report: Callable[[Json], None],
    note: Callable[[str], None],
) -> Json:
    """Fine-tune an encoder on annotated text, and write the folder `to`: finetuning.json, predictions.tsv and model/.

    A model with bottleneck adapters, which transformers cannot load, is scored and not stored.

    Args:
        layout, data: that of the texts, and their name.
        report: receives every epoch. note: receives messages about progress.

    Returns:
        The content of finetuning.json: figures and names, no text.

    Raises:
        RunError: training diverged. ConfigError, BackboneError: before anything trains.
    """
    started, task = time.monotonic(), "pairs" if layout == "pairs" else "ner"
    torch.set_num_threads(how.threads)
    labels, sizes, tokenizer = labels_of(texts), sizes_of(texts), encoder.tokenizer
    max_tokens, model = encoder.length(how.max_tokens), encoder.with_head(task, labels, how.seed)
    if task == "pairs":
        tokenizer.add_tokens(list(MARKERS), special_tokens=True)
        rows_now: Any = model.get_input_embeddings().num_embeddings
        model.resize_token_embeddings(max(rows_now, len(tokenizer)), mean_resizing=False)
    examples: dict[str, Any] = {}
    places: dict[str, list[Place]] = {}
    for split in texts:
        if task == "pairs":
            examples[split], sizes[split]["shortened"] = pair_examples(texts[split], labels, tokenizer, max_tokens)
        else:
            examples[split], places[split] = tagging_examples(texts[split], labels, tokenizer, max_tokens)

    def judged(split: Any, output: Any) -> tuple[Json, list[tuple[str, ...]]]:
        """Return the scores, and token, gold and predicted tag of each token with an empty row after a sentence, or a text's two labels."""
        answers = [labels[number] for number in output.predictions[output.label_ids != IGNORED]]
        if task == "pairs":
            gold = [text.label for text in texts[split]]
            return label_scores(gold, answers), [*zip(gold, answers, strict=True)]
        tags = [[OUTSIDE] * len(text.tokens) for text in texts[split]]
        for (sentence, word), tag in zip(places[split], answers, strict=True):
            tags[sentence][word] = tag
        rows = [row for text, of_it in zip(texts[split], tags, strict=True) for row in (*zip(*text, of_it, strict=True), ())]
        return tagging_scores([text.tags for text in texts[split]], tags), rows

    to.mkdir(parents=True, exist_ok=True)
    with Pace(note) as pace, TemporaryDirectory(dir=to, prefix=".") as checkpoints:
        watch = _Watch(how, pace, report)
        settings = TrainingArguments(
            checkpoints,
            num_train_epochs=how.epochs,
            learning_rate=how.learning_rate,
            per_device_train_batch_size=how.batch_size,
            per_device_eval_batch_size=how.batch_size,
            seed=how.seed,
            use_cpu=how.device == "cpu",
            bf16=how.precision == "bf16",
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            logging_nan_inf_filter=False,
            load_best_model_at_end=True,
            metric_for_best_model="micro_f1",
            save_total_limit=1,
            save_only_model=True,
            disable_tqdm=True,
            report_to="none",
            **FIXED,
        )
        trainer = Trainer(
            model,
            settings,
            (DataCollatorWithPadding if task == "pairs" else DataCollatorForTokenClassification)(tokenizer),
            examples["train"],
            examples["dev"],
            compute_metrics=lambda output: {"micro_f1": judged("dev", output)[0]["micro_f1"]},
            callbacks=[watch],
            preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trainer.compute_metrics = None
        (dev, _), (test, rows) = (judged(split, trainer.predict(examples[split])) for split in ("dev", "test"))
    stored = None if any(is_adapter(name) for name, _ in model.named_parameters()) else "model"
    about: Json = {
        "task": task,
        "data": data,
        "encoder": {"name": encoder.name, "fingerprint": encoder.fingerprint},
        "model": stored,
        "seed": how.seed,
        "settings": {**asdict(how), **FIXED, "max_tokens": max_tokens, "layout": layout},
        "labels": labels,
        "sizes": sizes,
        "epochs": watch.epochs,
        "best_epoch": max(watch.epochs, key=lambda epoch: epoch["dev_micro_f1"])["epoch"],
        "dev": dev,
        "test": test,
        "versions": library_versions(*LIBRARIES),
        "seconds": round(time.monotonic() - started, 1),
    }
    if stored:
        model.save_pretrained(to / stored)
        tokenizer.save_pretrained(to / stored)
    replace_text(to / "predictions.tsv", "".join("\t".join(row) + "\n" for row in rows))
    replace_text(to / FILE, json_text(about))  # written last: if it exists, the folder is complete
    return about
