"""The loop: what the seed decides, the rate, and which epoch is kept."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedlingua.common.errors import RunError
from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from fedlingua.desk.finetuning.examples import tagging_examples
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Epoch, answers, best_epoch, fine_tune, rate
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.desk.pace import Pace

TAGS = ["O", "B-Drug", "I-Drug"]
SENTENCES = [
    Tagged(["the", "patient", "took", drug, *filler], ["O", "O", "O", "B-Drug", *["O"] * len(filler)])
    for drug in ("aspirin", "heparin", "opium")
    for filler in ([], ["for", "days"], ["and", "slept", "well"])
]
HOW = FineTuning(epochs=3, learning_rate=1e-2, batch_size=4)


@pytest.fixture
def load(encoder_directory: Path) -> Callable[[], Encoder]:
    torch.set_num_threads(1)
    return lambda: load_encoder(encoder_directory, "ner", TAGS, HOW.seed, None, "cpu")


def tuned(encoder: Encoder, how: FineTuning = HOW, f1s: list[float] | None = None) -> tuple[list[Epoch], dict[str, bytes]]:
    examples = tagging_examples(SENTENCES, TAGS, encoder)
    said = iter(f1s or [0.0] * how.epochs)
    epochs = fine_tune(encoder.model, examples, 1, how, lambda: next(said), lambda _: None, Pace(lambda _: None))
    return epochs, {name: tensor.numpy().tobytes() for name, tensor in encoder.model.state_dict().items()}


def test_the_same_seed_gives_the_same_bytes_and_another_others(load: Callable[[], Encoder]) -> None:
    first, again = tuned(load()), tuned(load())
    assert first[1] == again[1]
    assert [epoch.loss for epoch in first[0]] == [epoch.loss for epoch in again[0]]
    assert tuned(load(), dataclasses.replace(HOW, seed=1))[1] != first[1]


def test_training_lowers_the_loss_and_the_answers_become_right(load: Callable[[], Encoder]) -> None:
    encoder = load()
    epochs, _ = tuned(encoder, dataclasses.replace(HOW, epochs=8))
    assert epochs[-1].loss < epochs[0].loss / 2
    examples = tagging_examples(SENTENCES, TAGS, encoder)
    # In the order that was asked, though they are answered by length.
    assert answers(encoder.model, examples, 1, HOW) == [[TAGS.index(tag) for tag in sentence.tags] for sentence in SENTENCES]


def test_the_best_epoch_on_dev_is_kept_and_of_equal_ones_the_later(load: Callable[[], Encoder]) -> None:
    epochs, kept = tuned(load(), f1s=[0.2, 0.7, 0.4])
    assert best_epoch(epochs).number == 2
    _, of_last = tuned(load(), f1s=[0.2, 0.3, 0.4])
    epochs, of_equal = tuned(load(), f1s=[0.5, 0.5, 0.1])
    assert best_epoch(epochs).number == 2
    assert kept == of_equal != of_last


def test_training_that_diverges_is_an_error_and_not_a_score(load: Callable[[], Encoder]) -> None:
    with pytest.raises(RunError, match=r"epoch 1 diverged at the learning rate 1e\+30; give a smaller --learning-rate"):
        tuned(load(), dataclasses.replace(HOW, learning_rate=1e30))


def test_the_rate_rises_to_the_whole_and_falls_to_nothing_after_the_last_step() -> None:
    # Ten steps, a fifth of them rising.
    assert [rate(step, 10, 0.2) for step in range(11)] == [0.5, 1.0, *(left / 8 for left in range(8, -1, -1))]
    assert rate(0, 1, 0.1) == 1.0
    assert rate(1, 1, 0.1) == 0.0


def test_one_step_of_a_fresh_adamw_moves_every_matrix_by_the_rate_and_the_decay(load: Callable[[], Encoder]) -> None:
    encoder = load()
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    tuned(encoder, dataclasses.replace(HOW, epochs=1, batch_size=len(SENTENCES), learning_rate=1e-3))
    weight, bias = "classifier.weight", "classifier.bias"
    after = encoder.model.state_dict()
    # Adam's first step is the sign of the gradient times the rate; matrices are drawn towards 0 before it.
    moved = (after[weight] - before[weight] * (1 - 1e-3 * HOW.weight_decay)).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 1e-3), rtol=1e-2, atol=1e-6)
    torch.testing.assert_close((after[bias] - before[bias]).abs(), torch.full((3,), 1e-3), rtol=1e-2, atol=1e-6)


@pytest.mark.usefixtures("native_bf16")
def test_bf16_is_another_arithmetic_on_float32_weights(load: Callable[[], Encoder]) -> None:
    encoder = load()
    _, trained = tuned(encoder, dataclasses.replace(HOW, precision="bf16"))
    assert all(parameter.dtype == torch.float32 for parameter in encoder.model.parameters())
    assert trained != tuned(load())[1]
