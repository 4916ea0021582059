"""Local training by a crew of processes, started for one round and gone after it.

They are fresh Python programs, as `accelerate launch` starts them, rather than forks as accelerate's notebook_launcher makes them or
children of multiprocessing: a Flower client has gRPC's threads and often a GPU in use, which no fork survives, and in Ray's actor and in
`flwr-clientapp` the main module, which multiprocessing would import again, is not ours. Job and answer go through pipes, so that no text
comes to lie in a file.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import torch
from torch import nn

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.processes import HOST
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.settings.config import Settings
from fedlingua.training.loop import LocalResult
from fedlingua.training.parallel.job import Done, Failed, Job
from fedlingua.training.parallel.wire import read_answer, write_job

GRACE_S = 2.0
"""After the first of a crew has failed: for the others to say why, since it may have failed by them."""
Answer = Done | Failed


def check_processes(settings: Settings) -> None:
    """Refuse more processes than this one sees GPUs, where they train on GPUs.

    Raises:
        ConfigError: tells both numbers.
    """
    seen = torch.cuda.device_count() if settings.device == "cuda" else settings.processes
    if settings.processes > seen:
        raise ConfigError(
            f"processes = {settings.processes}, and a site sees {seen} GPU(s) here; give processes = {max(seen, 1)} or less, in a "
            "site's file under [node], or let it see more: CUDA_VISIBLE_DEVICES, in a simulation gpus-per-node of the profile"
        )


def train_in_processes(trainable: Trainable, job: Job, log: Path) -> LocalResult:
    """As `train_locally`, in place, by as many processes as the settings say. log: what they print.

    Raises:
        ConfigError: fewer GPUs than that. RunError: a process failed or died; then none of them is left.
    """
    check_processes(job.settings)
    log.parent.mkdir(parents=True, exist_ok=True)
    with _off_the_gpu(trainable.model), tempfile.TemporaryDirectory(prefix="fedlingua-") as folder, log.open("wb") as printed:
        answers = _answers(job, Path(folder) / "meeting", printed)
    failures = {number: answer for number, answer in enumerate(answers) if isinstance(answer, Failed)}
    if failures:
        raise RunError(told_of(failures, job.settings.processes, log))
    done = answers[0]
    assert isinstance(done, Done)
    write_tensors(trainable.model, done.tensors)
    if job.kept is not None and done.kept is not None:
        job.kept.update(done.kept)
    return done.result


def _answers(job: Job, meeting: Path, printed: IO[bytes]) -> list[Answer]:
    """Of every process, in their order; none of them runs any more."""
    size, crew = job.settings.processes, list[subprocess.Popen[bytes]]()
    with ThreadPoolExecutor(size) as threads, ExitStack() as started:
        started.callback(_end, crew)
        for number in range(size):
            crew.append(start(number, job.settings, meeting, printed))
        answers = [threads.submit(_answer, process, job) for process in crew]
        waiting: set[Future[Answer]] = set(answers)
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            if any(isinstance(one.result(), Failed) for one in ended):
                wait(waiting, timeout=GRACE_S)
                _end(crew)
                break
        return [one.result() for one in answers]


def start(number: int, settings: Settings, meeting: Path, printed: IO[bytes]) -> subprocess.Popen[bytes]:
    """One process of a crew, which waits for its job on its input."""
    loopback = _loopback()
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ACCELERATE_")}
    places = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": settings.processes, "LOCAL_WORLD_SIZE": settings.processes}
    environment = {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **inherited,
        **{key: str(value) for key, value in places.items()},
        "OMP_NUM_THREADS": str(settings.threads),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # the code of the run, wherever its bundle lies
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fedlingua.training.parallel.worker", str(meeting)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=printed,
        start_new_session=True,  # a Ctrl-C is for the one that started it, who ends it
    )


def _answer(process: subprocess.Popen[bytes], job: Job) -> Answer:
    """Hand over the job, and wait for what becomes of it. The input stays open: with it the process would end."""
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):
        write_job(job, process.stdin)
    answer = process.stdout.read()
    code = process.wait()
    return read_answer(answer) or Failed(where=f"ended with {code}" if code >= 0 else f"was ended by signal {-code}")


def _end(crew: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in crew:
        process.kill()  # nothing, where it has been waited for
    for process in crew:
        process.wait()
        with suppress(OSError):  # of what it never took
            if process.stdin:
                process.stdin.close()


def told_of(failures: dict[int, Failed], size: int, log: Path) -> str:
    """The failure that the others come from: one in our own words, else a death, else what was raised."""
    number, first = min(failures.items(), key=lambda item: (not item[1].told, "ended" not in item[1].where))
    if first.told:
        return first.told
    return f"process {number + 1} of {size} that train together failed: {first.where}; {log} has what it printed"


def _loopback() -> str:
    """The interface that processes of one machine talk over."""
    places: Mapping[str, Sequence[Any]] = psutil.net_if_addrs()
    return next(name for name, found in places.items() if any(one.address == HOST for one in found))


@contextmanager
def _off_the_gpu(model: nn.Module) -> Iterator[None]:
    """The model is in main memory meanwhile: the first process needs the GPU's."""
    device = next(model.parameters()).device
    if device.type == "cpu":
        yield
        return
    model.to("cpu")
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        model.to(device)
