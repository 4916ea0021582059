"""One round of local training by several processes on a site's machine, started for the round and ended after it.

Python's multiprocessing starts new processes ("spawn") and passes the job and its result through pipes, so that no text is
written to a file; torch.distributed sums their gradients. No package starts processes in the way that a run needs: accelerate's
notebook_launcher forks, which neither gRPC's threads nor a GPU in use survive. `accelerate launch`, torchrun and
torch.multiprocessing.spawn return no result, and they listen on a port or write an exception to a file.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psutil
import torch
from torch import nn

from fedlingua.common.errors import ConfigError, FedlinguaError, RunError, StuckError, without_words
from fedlingua.common.processes import HOST, end_with_the_parent
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.config import Settings
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import LocalResult, train_locally
from fedlingua.training.optimizers import Numbers
from fedlingua.training.process_group import DistributedGroup, ProcessGroup

GRACE_S = 2.0
"""Seconds that the other processes have to report after the first failure, because one of them may be its cause."""


@dataclass(frozen=True)
class Job:
    """The arguments of `train_locally`, and the tensors to start from; the backbone is loaded from the settings' files."""

    settings: Settings
    tensors: Tensors
    texts: Sequence[Sequence[TrainingExample]]
    seed: str
    optimizer: dict[str, Numbers] | None
    this_round: tuple[int, int]


@dataclass(frozen=True)
class Done:
    """The result of a process: the group's sums, the tensors and the optimizer's state; only rank 0 sends tensors and state."""

    result: LocalResult
    tensors: Tensors
    optimizer: dict[str, Numbers] | None


@dataclass(frozen=True)
class Failed:
    """A failed process. reason: our own error message, if any; else where: the exception's type and place in the code. is_stuck: whether
    it is a StuckError."""

    reason: str = ""
    where: str = ""
    is_stuck: bool = False


def check_processes(settings: Settings) -> None:
    """Raise ConfigError if there are more training processes than visible GPUs."""
    seen = torch.cuda.device_count() if settings.device == "cuda" else settings.processes
    if settings.processes > seen:
        raise ConfigError(
            f"processes = {settings.processes}, and a site sees {seen} GPU(s) here; give processes = {max(seen, 1)} or less, in a "
            "site's file under [node], or let it see more: CUDA_VISIBLE_DEVICES, in a simulation gpus-per-node of the profile"
        )


def train_in_processes(trainable: Trainable, job: Job, log: Path) -> LocalResult:
    """Train in place as `train_locally` does, in the settings' number of processes. log: the file for their output.

    Raises:
        ConfigError: There are fewer GPUs than processes.
        RunError: A process failed or died; none of them is running any more.
    """
    check_processes(job.settings)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with _off_the_gpu(trainable.model), tempfile.TemporaryDirectory(prefix="fedlingua-") as folder:
        answers = _answers(job, Path(folder) / "meeting", log)
    failures = {rank: answer for rank, answer in answers.items() if isinstance(answer, Failed)}
    if failures:
        kind = StuckError if any(failure.is_stuck for failure in failures.values()) else RunError
        raise kind(first_failure(failures, job.settings.processes, log))
    done = answers[0]
    assert isinstance(done, Done)
    write_tensors(trainable.model, done.tensors)
    if job.optimizer is not None and done.optimizer is not None:
        job.optimizer.update(done.optimizer)
    return done.result


def train_as_one_of(group: ProcessGroup, trainable: Trainable, job: Job) -> Done:
    """Train a job as one process of a group, and return the result."""
    write_tensors(trainable.model, job.tensors)
    names, codec, settings = trainable.trained.names, trainable.backbone.codec, job.settings
    result = train_locally(
        trainable.model, names, job.texts, codec, settings, job.seed, job.optimizer, this_round=job.this_round, group=group
    )
    return Done(result, read_tensors(trainable.model, trainable.trained), job.optimizer)


def first_failure(failures: Mapping[int, Failed], size: int, log: Path) -> str:
    """Return the message of the failure that caused the others: our own error first, then a death, then any exception."""
    rank, first = min(failures.items(), key=lambda item: (not item[1].reason, "ended" not in item[1].where))
    if first.reason:
        return first.reason
    return f"process {rank + 1} of {size} that train together failed: {first.where}; {log} has what it printed"


def _answers(job: Job, meeting: Path, log: Path) -> dict[int, Done | Failed]:
    """Run the processes and return rank -> result; afterwards none of them is running."""
    context, processes, receivers = get_context("spawn"), list[SpawnProcess](), list[Connection]()
    answers: dict[int, Done | Failed] = {}
    try:
        for rank in range(job.settings.processes):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (rank, job, meeting, log, sender)
            processes.append(context.Process(target=_train, args=arguments, name=f"training-{rank + 1}", daemon=True))
            receivers.append(receiver)
            processes[-1].start()
            sender.close()  # so that a dead process is seen as the end of its pipe
        waiting, timeout = dict(zip(receivers, processes, strict=True)), None
        while waiting and (ready := wait(list(waiting), timeout)):
            for receiver in receivers:
                if receiver in ready:
                    answers[receivers.index(receiver)] = answer = _answer(receiver, waiting.pop(receiver))
                    timeout = GRACE_S if isinstance(answer, Failed) else timeout
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
    return answers


def _answer(receiver: Connection, process: SpawnProcess) -> Done | Failed:
    """Receive a process's result; if it died, return its exit code or signal."""
    try:
        answer: Done | Failed = receiver.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return Failed(where=f"ended with {code}" if code >= 0 else f"was ended by signal {-code}")
    return answer


# --- In each of the processes ---------------------------------------------------------------------------------------------


def _train(rank: int, job: Job, meeting: Path, log: Path, sender: Connection) -> None:
    """Train, send the result, and exit; exit as well when the parent process ends for any reason."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(printed, stream)
    interface = next(name for name, places in psutil.net_if_addrs().items() if any(place.address == HOST for place in places))
    os.environ |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    answer = _trained(rank, job, meeting)
    with suppress(BrokenPipeError):
        sender.send(answer)
    # Skip Python's own shutdown: after a failure NCCL would wait there for processes that are gone.
    os._exit(isinstance(answer, Failed))


def _trained(rank: int, job: Job, meeting: Path) -> Done | Failed:
    try:
        torch.set_num_threads(job.settings.threads)
        group = DistributedGroup(rank, job.settings.processes, meeting, job.settings.device)
        done = train_as_one_of(group, build_trainable(job.settings), job)
        group.check_alike(_digest(done.tensors))
        return done if rank == 0 else Done(done.result, {}, None)
    except FedlinguaError as error:
        return Failed(reason=str(error), is_stuck=isinstance(error, StuckError))
    except Exception as error:
        return Failed(where=without_words(error))


def _digest(tensors: Tensors) -> int:
    """Return a 48-bit hash of all tensors' bytes."""
    digest = hashlib.blake2b(digest_size=6)
    for array in tensors.values():
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest(), "big")


@contextmanager
def _off_the_gpu(model: nn.Module) -> Iterator[None]:
    """Keep the model in main memory during the block: the first process needs the GPU's."""
    device = next(model.parameters()).device
    if device.type == "cpu":
        yield
        return
    _move(model, "cpu")
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        _move(model, device)


def _move(model: nn.Module, device: torch.device | str) -> None:
    for module in model.modules():  # a module of 8 bits moves its scales only if it is moved itself
        module.to(device)
