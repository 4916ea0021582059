"""COMET of translations (Rei et al. 2020), segment by segment: the same numbers as comet-score's."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import sha256
from fedlingua.common.terminal import last_lines
from fedlingua.evaluation.comet.environment import VERSION, comet_python
from fedlingua.evaluation.text_metrics import Counts, Translated

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
BATCH_SIZE = 16
"""comet-score's default."""
PROCESS = Path(__file__).with_name("process.py")
NO_MODEL = 2
"""Exit status of the process if the model is not available."""


def comet_scores(
    texts: Mapping[str, Translated], model: str, say: Callable[[str], None], progress: Callable[[int, int], None]
) -> tuple[dict[str, Counts], int]:
    """Score texts with one model; return text -> counts, and the first 48 bits of the model file's sha256.

    counts: (sentences, 2): the score, about 0 to 1, and 1. The quotient of their sums is the corpus's score, the mean.
    model: A checkpoint's path (.ckpt, with its hparams.yaml in the folder above), or a name on the hub (Unbabel's if it has no owner).
    say: Called with a message before anything slow. progress: Called with (sentences done, sentences in total).

    Raises:
        ConfigError: There is no such checkpoint, or the model or the environment is not available. RunError: COMET failed.
    """
    total = sum(len(text.hypotheses) for text in texts.values())
    sides = {
        name: {"src": list(text.sources), "mt": list(text.hypotheses), "ref": list(text.references)}
        for name, text in texts.items()
    }
    result = _run(checked_model(model), sides, say, lambda done: progress(done, total))
    counts = {name: np.array([[score, 1.0] for score in scores]).reshape(-1, 2) for name, scores in result["scores"].items()}
    return counts, int(sha256(Path(result["checkpoint"]))[:12], 16)


def check_comet(model: str, say: Callable[[str], None]) -> None:
    """Make sure that COMET can score here, before any slow work: create its environment, and download its model.

    Raises:
        ConfigError: The environment or the model is not available.
    """
    _run(checked_model(model), {}, say, lambda done: None)


def _run(model: str, texts: Mapping[str, Any], say: Callable[[str], None], progress: Callable[[int], None]) -> dict[str, Any]:
    """Run a job in COMET's process and return its result. progress: Called with the number of sentences done."""
    import torch  # slow to import; a wrong name or checkpoint is refused without it

    python = comet_python(say)
    job = {"model": model, "gpus": int(torch.cuda.is_available()), "batch_size": BATCH_SIZE, "texts": texts}
    # The folder is readable by its owner alone, since the job holds text.
    with tempfile.TemporaryDirectory(prefix="fedlingua-comet-") as folder:
        job_file, result_file, log = Path(folder) / "job.json", Path(folder) / "result.json", Path(folder) / "log"
        job_file.write_text(json.dumps(job), encoding="utf-8")
        # -I isolates the process: a PYTHONPATH, which Ray sets for its workers, would import our libraries.
        command = [str(python), "-I", str(PROCESS), str(job_file), str(result_file)]
        with (
            log.open("w") as errors,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.startswith("done "):
                        progress(int(line.split()[1]))
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            _explain(process.returncode, model, last_lines(log.read_text(errors="replace"), 1))
        read: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8")) if texts else {}
        return read


def signature(model: str, checkpoint: int) -> str:
    """Return COMET's signature: its version and precision, the model and its checkpoint, one reference."""
    return f"Comet{VERSION}|fp16|{Path(model).name if is_checkpoint(model) else model}:{checkpoint:012x}|r1"


def is_checkpoint(model: str) -> bool:
    """Return whether a model is given by its file, not by its name."""
    return model.endswith(".ckpt")


def checked_model(model: str) -> str:
    """Return a checkpoint's absolute path, or a name with its owner; raise ConfigError if there is no such file."""
    if is_checkpoint(model):
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
    # The last line of a traceback holds no text of a site: no error of COMET quotes its input.
    raise RunError(f"COMET failed (exit status {code}): {reason}")
