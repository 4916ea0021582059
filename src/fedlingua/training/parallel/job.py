"""One round of local training as it is handed to each process of a crew, and what comes back of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.settings.config import Settings
from fedlingua.training.batches import TrainingExample
from fedlingua.training.crew import Crew
from fedlingua.training.loop import LocalResult, LocalTraining, train_locally
from fedlingua.training.optimizers import Numbers


@dataclass(frozen=True)
class Job:
    """What `train_locally` takes, with the tensors to start from; the backbone comes from the files that the settings name."""

    settings: Settings
    tensors: Tensors
    texts: Sequence[Sequence[TrainingExample]]
    seed: str
    kept: dict[str, Numbers] | None
    this_round: tuple[int, int]


@dataclass(frozen=True)
class Done:
    """Trained: the sums of the whole crew, the tensors, and what the optimiser goes on from."""

    result: LocalResult
    tensors: Tensors
    kept: dict[str, Numbers] | None


@dataclass(frozen=True)
class Failed:
    """Not trained. told: for the user, in words of our own; else where, the type of what was raised and its place in the code."""

    told: str = ""
    where: str = ""


def work(trainable: Trainable, job: Job, crew: Crew) -> Done:
    """Train as one of a crew."""
    write_tensors(trainable.model, job.tensors)
    how = LocalTraining.of(job.settings)
    names, codec = trainable.trained.names, trainable.backbone.codec
    result = train_locally(
        trainable.model, names, job.texts, codec, how, job.seed, job.kept, this_round=job.this_round, crew=crew
    )
    return Done(result, read_tensors(trainable.model, trainable.trained), job.kept)
