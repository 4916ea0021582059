"""COMET of translations (Rei et al. 2020), segment by segment: the same numbers as comet-score's."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedlingua.comet.environment import VERSION, comet_python
from fedlingua.errors import ConfigError, RunError
from fedlingua.evaluation.text_metrics import Counts, Translated
from fedlingua.hashing import sha256
from fedlingua.processes import last_lines

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
BATCH_SIZE = 16
"""comet-score's."""
PROCESS = Path(__file__).with_name("process.py")
NO_MODEL = 2
"""Exit status of the process: the model could not be had."""


@dataclass(frozen=True)
class CometScores:
    """segments: text -> a number a sentence, about 0 to 1. signature: by what they were made."""

    segments: Mapping[str, Sequence[float]]
    signature: str

    def counts(self, name: str) -> Counts:
        """(sentences, 2) of a text: the score and 1, so that a corpus's score is the share of their sums, the mean."""
        scores = np.asarray(self.segments[name], dtype=np.float64)
        return np.stack([scores, np.ones(len(scores))], axis=1)


def comet_scores(
    texts: Mapping[str, Translated], model: str, say: Callable[[str], None], progress: Callable[[int, int], None]
) -> CometScores:
    """Score texts with one model.

    model: a checkpoint's path (.ckpt, with its hparams.yaml in the folder above), or a name on the hub; without an owner, Unbabel's.
    say: told before anything that takes long; progress: (sentences done, of how many).

    Raises:
        ConfigError: no such checkpoint, or neither the model nor the environment can be had here. RunError: it broke off.
    """
    model = checked_model(model)
    python = comet_python(say)
    total = sum(len(text.hypotheses) for text in texts.values())
    job = {
        "model": model,
        "gpus": int(torch.cuda.is_available()),
        "batch_size": BATCH_SIZE,
        "texts": {
            name: {"src": list(text.sources), "mt": list(text.hypotheses), "ref": list(text.references)}
            for name, text in texts.items()
        },
    }
    say(f"scoring {total:,} sentences by COMET, {model}")
    # The folder is for its owner alone: text stands in it.
    with tempfile.TemporaryDirectory(prefix="fedlingua-comet-") as folder:
        job_file, result_file, log = Path(folder) / "job.json", Path(folder) / "result.json", Path(folder) / "log"
        job_file.write_text(json.dumps(job), encoding="utf-8")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                [str(python), str(PROCESS), str(job_file), str(result_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.startswith("done "):
                        progress(int(line.split()[1]), total)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            _explain(process.returncode, model, last_lines(log.read_text(errors="replace"), 1))
        result = json.loads(result_file.read_text(encoding="utf-8"))
    checkpoint = Path(result["checkpoint"])
    name = model if checkpoint != Path(model) else f"{checkpoint.name}:{sha256(checkpoint)[:12]}"
    segments = {name: tuple(scores) for name, scores in result["scores"].items()}
    return CometScores(segments, f"Comet{VERSION}|fp16|{name}|r1")


def checked_model(model: str) -> str:
    """A checkpoint's absolute path, or a name with its owner.

    Raises:
        ConfigError: no such file.
    """
    if model.endswith(".ckpt"):
        path = Path(model).expanduser().resolve()
        if not path.is_file():
            raise ConfigError(
                f"COMET model {model}: there is no such checkpoint; give the path of a .ckpt file, or a name such as {DEFAULT_MODEL}"
            )
        if not (path.parents[1] / "hparams.yaml").is_file():
            raise ConfigError(
                f"COMET model {model}: {path.parents[1] / 'hparams.yaml'} is missing; a checkpoint lies in a folder beside the model's "
                "hparams.yaml, as published"
            )
        return str(path)
    return model if "/" in model else f"Unbabel/{model}"


def _explain(code: int, model: str, reason: str) -> None:
    if code == NO_MODEL:
        raise ConfigError(
            f"COMET model {model} is not on this machine and could not be fetched ({reason}); fetch it once where the hub can be "
            "reached, or give --model the path of a checkpoint (.ckpt)"
        )
    # The last line of a traceback names no sentence: COMET raises none that quotes its input.
    raise RunError(f"COMET broke off (exit status {code}): {reason}")
