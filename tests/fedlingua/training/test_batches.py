"""Batches: every example once, of similar length."""

import random
from collections import Counter
from itertools import chain, pairwise

import pytest
import torch

from fedlingua.training.batches import IGNORED, POOL, by_tokens, optimizer_steps, padded
from fedlingua.training.translation import JoinedBatch, PairExample


@pytest.fixture
def of_lengths() -> list[PairExample]:
    """23 examples of lengths 3 to 9, told apart by their first id."""
    rng = random.Random(4)
    return [PairExample([100 + n] * rng.randint(3, 9), [200 + n] * rng.randint(3, 9)) for n in range(23)]


def test_padding_by_hand() -> None:
    assert padded([[7], [8, 9, 6], []], 1).tolist() == [[7, 1, 1], [8, 9, 6], [1, 1, 1]]


def test_rows_at_labels_and_before_them_by_hand_wherever_the_places_are_known_from() -> None:
    labels = torch.tensor([[IGNORED, 5, IGNORED], [IGNORED, IGNORED, 6], [IGNORED, 7, 8]])
    batch = JoinedBatch(labels, labels, labels)
    values = torch.arange(18).view(3, 3, 2)
    known = JoinedBatch(labels, labels, labels, places=batch.label_places())
    assert batch.label_places().tolist() == [1, 5, 7, 8]
    for each in (batch, known):
        assert each.at_labels(values).tolist() == [[2, 3], [10, 11], [14, 15], [16, 17]]
        assert each.at_labels(values, before=1).tolist() == [[0, 1], [8, 9], [12, 13], [14, 15]]
        assert each.at_labels(labels).tolist() == [5, 6, 7, 8]


def longer(example: PairExample) -> int:
    return max(len(example.source), len(example.target))


def test_an_epoch_of_steps_holds_every_example_once(of_lengths: list[PairExample]) -> None:
    steps = list(optimizer_steps(of_lengths, 2, 4, random.Random(1)))
    assert [[len(batch) for batch in step] for step in steps] == [[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 1]]
    assert Counter(e.source[0] for e in chain(*chain(*steps))) == Counter(e.source[0] for e in of_lengths)


def test_a_step_holds_the_examples_that_plain_shuffling_gives_it(of_lengths: list[PairExample]) -> None:
    shuffled = list(of_lengths)
    random.Random(1).shuffle(shuffled)
    for number, step in enumerate(optimizer_steps(of_lengths, 2, 4, random.Random(1))):
        lengths = [longer(example) for example in chain(*step)]
        assert lengths == sorted(lengths)
        assert sorted(chain(*step)) == sorted(shuffled[8 * number : 8 * number + 8])


def test_batches_by_length_are_of_neighbours_and_come_in_random_order(of_lengths: list[PairExample]) -> None:
    batches = [step[0] for step in optimizer_steps(of_lengths, 4, 1, random.Random(1), by_length=True)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert Counter(e.source[0] for e in chain(*batches)) == Counter(e.source[0] for e in of_lengths)
    ordered = sorted(batches[:5], key=lambda batch: [example.length for example in batch])
    assert all(before[-1].length <= after[0].length for before, after in pairwise(ordered))
    assert batches[:5] != ordered


def test_the_rest_that_fills_no_batch_is_drawn_of_all_lengths_and_comes_last(of_lengths: list[PairExample]) -> None:
    """So a step of a few sentences is never the one of the longest."""
    rests = [list(optimizer_steps(of_lengths, 5, 1, random.Random(seed), by_length=True))[-1][0] for seed in range(40)]
    assert {len(rest) for rest in rests} == {3}
    assert len({e.source[0] for e in chain(*rests)}) == 23


def test_only_the_examples_of_a_pool_are_sorted_together() -> None:
    examples = [PairExample([100 + n] * (3 + n % 5), [7] * 3) for n in range(POOL * 2 + 40)]
    shuffled = list(examples)
    random.Random(1).shuffle(shuffled)
    batches = [step[0] for step in optimizer_steps(examples, 2, 1, random.Random(1), by_length=True)]
    assert sorted(chain(*batches[:POOL])) == sorted(shuffled[: 2 * POOL])
    assert sorted(chain(*batches[POOL:])) == sorted(shuffled[2 * POOL :])


def test_the_order_follows_the_randomness_that_is_handed_in(of_lengths: list[PairExample]) -> None:
    def order(seed: int) -> list[list[list[PairExample]]]:
        return list(optimizer_steps(of_lengths, 2, 2, random.Random(seed)))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_batches_by_tokens_stay_within_the_limit_and_hold_every_example_once(of_lengths: list[PairExample]) -> None:
    batches = list(by_tokens(of_lengths, 20, random.Random(1)))
    assert all(len(batch) * max(map(longer, batch)) <= 20 for batch in batches)
    assert Counter(e.source[0] for e in chain(*batches)) == Counter(e.source[0] for e in of_lengths)


def test_a_batch_by_tokens_is_as_full_as_its_neighbours_length_lets_it_be() -> None:
    examples = [PairExample([1] * 3, [2] * 4) for _ in range(5)] + [PairExample([1] * 5, [2] * 2)]
    # Five of length 4 make 20 tokens; a sixth of length 5 would make 30.
    assert sorted(len(batch) for batch in by_tokens(examples, 20, random.Random(1))) == [1, 5]


def test_an_example_longer_than_the_limit_is_a_batch_of_its_own() -> None:
    examples = [PairExample([1] * 30, [2] * 3), PairExample([1] * 3, [2] * 3)]
    assert sorted(len(batch) for batch in by_tokens(examples, 20, random.Random(1))) == [1, 1]


def test_no_examples_are_no_batches() -> None:
    assert not list(by_tokens([], 20, random.Random(1)))
    assert not list(optimizer_steps([], 2, 2, random.Random(1)))
