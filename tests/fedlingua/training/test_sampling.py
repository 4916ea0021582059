"""How much of a site's text a round trains on, against the paper's own silos, and how it is drawn."""

from collections import Counter
from random import Random

import pytest

from fedlingua.settings.config import Settings
from fedlingua.training.sampling import in_passes, most_samples, num_samples, sampled, tempered

SILOS = [412437, 477323, 502479, 400175, 132593658, 575559, 83963, 34104, 100762]
"""Sentences of the nine silos of Manoel et al. 2022, table 1; the fifth is English."""


def test_of_the_papers_silos_all_draw_500_but_the_english() -> None:
    """0.8e-4 x 132,593,658 = 10,607.49."""
    assert [num_samples(size, 500, 0.8e-4) for size in SILOS] == [500, 500, 500, 500, 10607, 500, 500, 500, 500]


@pytest.mark.parametrize(("size", "share", "number"), [(10, 0.25, 3), (10, 0.24, 2), (10, 0.0, 0), (3, 2.0, 6), (10, 0.01, 1)])
def test_a_share_is_rounded_halves_up_and_never_to_nothing(size: int, share: float, number: int) -> None:
    assert num_samples(size, 0, share) == max(number, 1)


def test_without_sampling_every_example_comes_once_text_by_text() -> None:
    assert sampled([[1, 2, 3], [], [4]], Settings(), Random(1)) == [1, 2, 3, 4]
    assert sampled([[1, 2], [3]], Settings(sampling_temperature=5.0), Random(1)) == [1, 2, 3]


def test_a_share_of_next_to_nothing_is_still_a_sample() -> None:
    assert len(sampled([list(range(10))], Settings(sample_share=1e-6), Random(1))) == 1


def test_a_small_text_is_drawn_with_replacement() -> None:
    drawn = sampled([["a", "b"]], Settings(sample_least=500), Random(1))
    assert len(drawn) == 500
    assert Counter(drawn)["a"] == pytest.approx(250, abs=50)


def test_several_texts_draw_as_many_as_if_each_were_by_itself() -> None:
    texts = [list(range(1000)), list(range(10)), []]
    drawn = sampled(texts, Settings(sample_least=20, sample_share=0.1), Random(1))
    assert len(drawn) == 100 + 20


def test_by_size_at_a_temperature_of_one_and_alike_at_a_large_one() -> None:
    assert tempered([1, 3], 1.0) == [0.25, 0.75]
    assert tempered([1, 4], 2.0) == pytest.approx([1 / 3, 2 / 3])  # square roots: 1 and 2
    assert tempered([1, 9, 10**8], 1e9) == pytest.approx([1 / 3] * 3)
    assert tempered(SILOS, 1.0) == [size / sum(SILOS) for size in SILOS]  # to the last bit


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.9), (2.0, 0.75), (1e9, 0.5)])
def test_texts_are_drawn_from_by_their_tempered_sizes(temperature: float, share: float) -> None:
    """Of 900 and 100 sentences: 9 to 1, 3 to 1, and alike."""
    texts = [["large"] * 900, ["small"] * 100]
    drawn = Counter(sampled(texts, Settings(sample_least=2000, sampling_temperature=temperature), Random(1)))
    assert drawn.total() == 4000
    assert drawn["large"] / 4000 == pytest.approx(share, abs=0.03)


def test_the_randomness_that_is_handed_in_decides() -> None:
    settings, texts = Settings(sample_least=30), [list(range(50)), list(range(50, 60))]
    assert sampled(texts, settings, Random(1)) == sampled(texts, settings, Random(1))
    assert sampled(texts, settings, Random(1)) != sampled(texts, settings, Random(2))


def test_no_texts_draw_more_than_the_most_and_one_text_draws_it() -> None:
    rng = Random(3)
    for _ in range(2000):
        texts = [rng.randint(1, rng.choice([5, 2000])) for _ in range(rng.randint(1, 6))]
        least, share = rng.choice([(0, 0.3), (0, 0.0005), (1, 0.5), (50, 0.0), (50, 0.1), (3, 1.5)])
        drawn = sum(num_samples(size, least, share) for size in texts)
        most = most_samples(sum(texts), len(texts), least, share)
        assert drawn <= most
        assert drawn == most or len(texts) > 1


def test_draws_without_replacement_see_every_example_once_before_any_comes_again() -> None:
    texts = [list(range(17)), list(range(17, 20)), []]
    settings = Settings(sample_least=2, sample_replacement=False)  # 4 of 20 a draw
    drawn = [sampled(texts, settings, Random(number), number) for number in range(10)]
    assert [len(one) for one in drawn] == [4] * 10
    first, second = ([one for draw in drawn[half : half + 5] for one in draw] for half in (0, 5))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert first != sorted(first)
    assert sampled(texts, settings, Random(9), 3) == drawn[3]  # a resumed round draws what it drew


def test_a_draw_goes_on_from_one_pass_into_the_next() -> None:
    row = in_passes("abcde", 0, 20, "key")
    assert in_passes("abcde", 3, 11, "key") == row[3:14]
    assert all(sorted(row[start : start + 5]) == list("abcde") for start in range(0, 20, 5))
