"""A thread that translates, and its bounded queue: requests that wait for the same variant are translated as one batch."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from fedlingua.desk.translating.models import TrainedModel

SENTENCES_AT_ONCE = 64
"""Most sentences in a batch of several requests; a longer request is a batch by itself."""


@dataclass(eq=False)
class FullError(Exception):
    """The queue is full. retry_s: seconds after which there should be room."""

    retry_s: int


_THREAD = "translating"


@dataclass(eq=False)
class _Waiting:
    variant: TrainedModel
    sentences: list[str]
    future: Future[list[str]] = field(default_factory=Future)


class Batcher:
    """Answers requests in order; those for the same variant as the oldest are answered together with it.

    translate: (variant, sentences) -> translations, called from one thread only. An error that it raises for several requests is
    followed by a call for each of them alone, so that it fails none but the one that causes it.
    """

    def __init__(self, translate: Callable[[TrainedModel, list[str]], list[str]], most_waiting: int) -> None:
        self._translate, self._most_waiting = translate, most_waiting
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._request_s = 0.1  # moving average over recent requests
        self.requests = self.sentences = self.batches = 0
        self._thread = threading.Thread(target=self._work, name=_THREAD, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def works(self) -> bool:
        """Whether requests are still answered."""
        return self._thread.is_alive() and not self._closed

    def ask(self, variant: TrainedModel, sentences: Sequence[str]) -> Future[list[str]]:
        """Queue a request and return a future of its translations, cancelled if the server is shutting down; raise FullError."""
        asked = _Waiting(variant, list(sentences))
        with self._changed:
            if self._closed:
                asked.future.cancel()
                return asked.future
            if len(self._queue) >= self._most_waiting:
                # A cancelled request takes no place.
                self._queue = deque(request for request in self._queue if not request.future.cancelled())
            if len(self._queue) >= self._most_waiting:
                raise FullError(max(1, round(len(self._queue) * self._request_s)))
            self._queue.append(asked)
            self._changed.notify()
        return asked.future

    def close(self, wait_s: float) -> None:
        """Answer waiting requests while time remains, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(wait_s)
        with self._changed:
            for left in self._queue:
                left.future.cancel()
            self._queue.clear()

    def _work(self) -> None:
        while batch := self._next():
            started = time.monotonic()
            self.batches += 1  # before any reply, since a client that has one may ask for the counts next
            self.requests += len(batch)
            self.sentences += sum(len(request.sentences) for request in batch)
            if not self._answer(batch):
                for request in batch:
                    self._answer([request])
            self._request_s = 0.8 * self._request_s + 0.2 * (time.monotonic() - started) / len(batch)

    def _answer(self, batch: list[_Waiting]) -> bool:
        """Translate a batch; return False if several requests failed together and have no reply yet."""
        try:
            sentences = [sentence for request in batch for sentence in request.sentences]
            translations = iter(self._translate(batch[0].variant, sentences))
        except Exception as error:
            if len(batch) > 1:
                return False
            batch[0].future.set_exception(error)
            return True
        for request in batch:
            request.future.set_result([next(translations) for _ in request.sentences])
        return True

    def _next(self) -> list[_Waiting]:
        """Wait for the oldest request, and return it with those for the same variant; return nothing once closed and empty."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return []
                if batch := self._taken():
                    return batch

    def _taken(self) -> list[_Waiting]:
        first, batch, left, size = self._queue[0].variant, list[_Waiting](), deque[_Waiting](), 0
        for request in self._queue:
            same = request.variant == first
            fits = not batch or size + len(request.sentences) <= SENTENCES_AT_ONCE
            if not (same and fits):
                left.append(request)
            elif request.future.set_running_or_notify_cancel():
                batch.append(request)
                size += len(request.sentences)
        self._queue = left
        return batch


def is_translating() -> bool:
    """Return whether a thread is still translating, as when the time to shut down was too short for it."""
    return any(thread.name == _THREAD and thread.is_alive() for thread in threading.enumerate())
