"""Batches: shifted once, padded by value, every example once, lengths sorted only inside a step."""

import random
from collections import Counter
from itertools import chain

import pytest

from fedlingua.backbones.load import Backbone
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction
from fedlingua.training.batches import IGNORED, Example, by_tokens, encode_pairs, optimiser_steps, pad


@pytest.fixture
def of_lengths() -> list[Example]:
    """23 examples of lengths 3 to 9, told apart by their first id."""
    rng = random.Random(4)
    return [Example([100 + n] * rng.randint(3, 9), [200 + n] * rng.randint(3, 9)) for n in range(23)]


def longer(example: Example) -> int:
    return max(len(example.source), len(example.target))


def test_a_batch_is_padded_and_shifted_by_hand(backbone: Backbone) -> None:
    batch = pad([Example([50, 11, 2], [60, 21, 22, 2]), Example([50, 11, 12, 13, 2], [60, 2])], backbone.codec)
    assert batch.input_ids.tolist() == [[50, 11, 2, 1, 1], [50, 11, 12, 13, 2]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [[60, 21, 22, 2], [60, 2, IGNORED, IGNORED]]
    assert batch.decoder_input_ids.tolist() == [[2, 60, 21, 22], [2, 60, 1, 1]]


def test_each_side_of_a_pair_carries_its_own_language(backbone: Backbone) -> None:
    codec = backbone.codec
    (example,) = encode_pairs([Pair("ja", "oui")], Direction("de", "fr"), codec, 8)
    assert (example.source[0], example.target[0]) == (codec.language_ids["de"], codec.language_ids["fr"])
    assert (codec.decode([example.source]), codec.decode([example.target])) == (["ja"], ["oui"])


def test_both_sides_are_cut_at_max_tokens(backbone: Backbone) -> None:
    long = " ".join(["ja"] * 30)
    (example,) = encode_pairs([Pair(long, long)], Direction("de", "fr"), backbone.codec, 6)
    assert (len(example.source), len(example.target)) == (6, 6)


def test_an_epoch_of_steps_holds_every_example_once(of_lengths: list[Example]) -> None:
    steps = list(optimiser_steps(of_lengths, 2, 4, random.Random(1)))
    assert [[len(batch) for batch in step] for step in steps] == [[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 1]]
    assert Counter(e.source[0] for e in chain(*chain(*steps))) == Counter(e.source[0] for e in of_lengths)


def test_a_step_holds_the_examples_that_plain_shuffling_gives_it(of_lengths: list[Example]) -> None:
    shuffled = list(of_lengths)
    random.Random(1).shuffle(shuffled)
    for number, step in enumerate(optimiser_steps(of_lengths, 2, 4, random.Random(1))):
        lengths = [longer(example) for example in chain(*step)]
        assert lengths == sorted(lengths)
        assert sorted(chain(*step)) == sorted(shuffled[8 * number : 8 * number + 8])


def test_the_order_follows_the_randomness_that_is_handed_in(of_lengths: list[Example]) -> None:
    def order(seed: int) -> list[list[list[Example]]]:
        return list(optimiser_steps(of_lengths, 2, 2, random.Random(seed)))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_batches_by_tokens_stay_within_the_limit_and_hold_every_example_once(of_lengths: list[Example]) -> None:
    batches = list(by_tokens(of_lengths, 20, random.Random(1)))
    assert all(len(batch) * max(map(longer, batch)) <= 20 for batch in batches)
    assert Counter(e.source[0] for e in chain(*batches)) == Counter(e.source[0] for e in of_lengths)


def test_a_batch_by_tokens_is_as_full_as_its_neighbours_length_lets_it_be() -> None:
    examples = [Example([1] * 3, [2] * 4) for _ in range(5)] + [Example([1] * 5, [2] * 2)]
    # Five of length 4 make 20 tokens; a sixth of length 5 would make 30.
    assert sorted(len(batch) for batch in by_tokens(examples, 20, random.Random(1))) == [1, 5]


def test_an_example_longer_than_the_limit_is_a_batch_of_its_own() -> None:
    examples = [Example([1] * 30, [2] * 3), Example([1] * 3, [2] * 3)]
    assert sorted(len(batch) for batch in by_tokens(examples, 20, random.Random(1))) == [1, 1]


def test_no_examples_are_no_batches() -> None:
    assert not list(by_tokens([], 20, random.Random(1)))
    assert not list(optimiser_steps([], 2, 2, random.Random(1)))
