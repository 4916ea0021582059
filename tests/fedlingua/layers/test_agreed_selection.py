"""What a rule leaves out of the next sum, by hand."""

from typing import Any

import numpy as np
import pytest

from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.layers.agreed_selection import left_out_next
from fedlingua.settings.checks import settings_from


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ("fixed-g", "bd", "e"),
        ("fixed-l", "ace", "d"),
        ("dp-g", "ab", "d"),
        ("dp-l", "cde", "a"),
    ],
)
def test_a_rule_judges_what_was_in_the_sum_and_the_rest_is_sent_next(
    rule: str, first: str, second: str, run_config: dict[str, Any]
) -> None:
    """Five tensors deviate by 5, 1, 4, 2 and 3 hundredths, their numbers in all by 15, 7, 44, 30 and 57, in every round they are sent in.

    first, second: Those that the second and the third sum are without.
    """
    settings = settings_from(
        {**run_config, "method": "adapter-fed", "privacy.sum": "secure", "send.rule": rule, "send.fixed-threshold": "median"}
    )
    whole = TensorSet("adapters", tuple(TensorSpec(f"decoder.{name}", (2,), "decoder", None) for name in "abcde"))
    start = np.arange(1, 11, dtype=np.float32)
    moved = start * np.repeat(np.array([1.05, 1.01, 1.04, 1.02, 1.03], np.float32), 2)
    out = [False] * 5
    for wanted in (first, second):
        new = np.where(np.repeat(out, 2), start, moved)
        out = left_out_next(settings, "decoder", whole, out, new, start, np.random.default_rng(1))
        assert "".join(name for name, skip in zip("abcde", out, strict=True) if skip) == wanted
