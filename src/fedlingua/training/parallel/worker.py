"""One process of a crew: `python -m fedlingua.training.parallel.worker FILE`, the job on its standard input and the answer on its output.

It ends when its standard input does: whoever started it holds that open, and so leaves nothing behind, however it ends itself.
"""

import hashlib
import os
import sys
import threading
from io import BufferedWriter
from pathlib import Path

import torch

from fedlingua.common.errors import FedlinguaError, without_words
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import build_trainable
from fedlingua.training.parallel.job import Done, Failed, work
from fedlingua.training.parallel.processes import Processes
from fedlingua.training.parallel.wire import ReadJob, answer_bytes


def main() -> None:
    """Train, answer, end."""
    answer = _own_output()
    job = ReadJob(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    reply = _reply(job, Path(sys.argv[1]))
    with answer:
        answer.write(answer_bytes(reply))
    # Without the rest of Python's end: after a failure NCCL would wait there for those that are gone.
    os._exit(isinstance(reply, Failed))


def _reply(read: ReadJob, meeting: Path) -> Done | Failed:
    try:
        torch.set_num_threads(read.settings.threads)
        crew = Processes(meeting, read.settings.device)
        trainable = build_trainable(read.settings)
        done = work(trainable, read.job(trainable.backbone.codec), crew)
        crew.check_alike(_digest(done.tensors))
        crew.end()
        return done if crew.number == 0 else Done(done.result, {}, None)
    except FedlinguaError as error:
        return Failed(told=str(error))
    except Exception as error:
        return Failed(where=without_words(error))


def _own_output() -> BufferedWriter:
    """Standard output for the answer alone; what libraries print goes where errors go."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "wb")


def _end_with_the_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _digest(tensors: Tensors) -> int:
    """48 bits of all bytes."""
    digest = hashlib.blake2b(digest_size=6)
    for array in tensors.values():
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest(), "big")


if __name__ == "__main__":
    main()
