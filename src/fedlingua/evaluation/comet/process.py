"""A script for COMET's own environment. It scores every text of a job as `comet-score` does, with one model for all.

    python process.py JOB.json RESULT.json

JOB: {"model", "gpus", "batch_size", "texts": {name: {"src": [...], "mt": [...], "ref": [...]}}}; model: a checkpoint's path, or a name on
the hub, which is downloaded; a job without texts does only that. RESULT: {"checkpoint": its path, "scores": {name: [a score a sentence]}}.
The script prints after each batch how many sentences are done, and imports nothing of ours. Exit status 2: the model is not available.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from comet import download_model, load_from_checkpoint
from pytorch_lightning import seed_everything

NO_MODEL = 2


def main(job_file: str, result_file: str) -> int:
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    try:
        checkpoint = job["model"] if Path(job["model"]).is_file() else download_model(job["model"])
        model = load_from_checkpoint(checkpoint) if job["texts"] else None
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return NO_MODEL
    if model is None:
        return 0
    # As in comet-score: half precision, one seed, sentence embeddings kept.
    torch.set_float32_matmul_precision("high")
    seed_everything(1)
    model.eval()
    model.half()
    model.set_embedding_cache()
    count_sentences(model)
    scores, size, gpus = {}, job["batch_size"], job["gpus"]
    accelerator = "auto" if gpus else "cpu"
    for name, text in job["texts"].items():
        samples = [dict(zip(text, each, strict=True)) for each in zip(*text.values(), strict=True)]
        predicted = model.predict(samples=samples, batch_size=size, gpus=gpus, progress_bar=False, accelerator=accelerator)
        scores[name] = [float(score) for score in predicted.scores]
    result = {"checkpoint": str(checkpoint), "scores": scores}
    Path(result_file).write_text(json.dumps(result), encoding="utf-8")
    return 0


def count_sentences(model: Any) -> None:
    """Make the model print after each batch how many sentences are done."""
    step, done = model.predict_step, 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal done
        predicted = step(*arguments, **named)
        done += len(predicted["scores"])
        print(f"done {done}", flush=True)
        return predicted

    model.predict_step = counted


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
