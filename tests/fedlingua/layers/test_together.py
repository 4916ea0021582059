"""Layers that stand beside each other in one run: what comes out is what comes out of a run without masks, or without codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import opened
from fedlingua.exchange.trainable import build_trainable
from fedlingua.layers.codes import decoded_update
from fedlingua.privacy.fixed_point import Group
from fedlingua.privacy.masks import MODELS, WITHOUT
from fedlingua.settings.checks import settings_from
from tests.federations import SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run_on

SECURE = {"method": "adapter-fed", "privacy.sum": "secure", "rounds": 2, "quorum": 0.7}
DRAWN = {"sites-per-round": 3}
BOUND = 0.02
CLIPPED = {"aggregation": "norm-clip", "robust.clip-norm": BOUND}
FEW_BITS = {"send.code": "4bit", "send.code-down": "none"}


def tensors(folder: Any) -> dict[str, np.ndarray]:
    return {name: array for content in checkpoint_bytes(folder).values() for name, array in load(content).items()}


def requests(live: InProcessGrid, number: int) -> dict[str, Any]:
    """Site -> its training request in a round."""
    sent = (message for message in live.sent if message.metadata.message_type == protocol.TRAIN)
    tasks = ((message.content[protocol.TASK], message.content) for message in sent)
    return {str(task["site"]): content for task, content in tasks if task["round"] == number}


def level_of(live: InProcessGrid, top: int) -> float:
    """The coarsest level in which a site rounded its change in round 1."""
    asked = next(iter(requests(live, 1).values()))[protocol.SECURE]
    return max(2.0**scale for part, scales in asked.items() if part not in (MODELS, WITHOUT) for scale in scales) / top


@pytest.mark.parametrize("changes", [DRAWN, CLIPPED, DRAWN | CLIPPED], ids=["drawn", "clipped", "both"])
def test_a_secure_sum_of_drawn_or_clipped_changes_is_the_plain_mean(
    changes: dict[str, Any], four_sites: dict[str, Any], run_once: Callable[..., Any]
) -> None:
    short = {key: value for key, value in four_sites.items() if key not in ("backbone", "federation")}
    config = {**short, **SECURE, **changes, "rounds": 1}
    folder, live = run_once(config)
    plain, _ = run_once({**config, "privacy.sum": "plain", "robust.max-ratio": 0.0})
    summed, mean, level = tensors(folder), tensors(plain), level_of(live, Group.of(4).top)
    assert all(np.abs(summed[name] - mean[name]).max() <= level for name in mean)
    line, other = rounds(folder)[1], rounds(plain)[1]
    assert line.get("drawn") == other.get("drawn")
    assert line["secure_sum"]["sites"] == len(line.get("drawn", SITES))
    if "robust.clip-norm" in changes:
        clipped = [site["scaled_to"] for site in other["sites"].values() if "scaled_to" in site]
        assert len(clipped) == len(line.get("drawn", SITES))
        assert level <= BOUND / Group.of(4).top * 2


def test_a_rounds_sum_is_without_those_not_drawn_and_the_dev_loss_is_of_all(
    four_sites: dict[str, Any], run_once: Callable[..., Any]
) -> None:
    short = {key: value for key, value in four_sites.items() if key not in ("backbone", "federation")}
    folder, live = run_once({**short, **SECURE, **DRAWN})
    out = list[set[str]]()
    for number, line in enumerate(rounds(folder)[1:], start=1):
        asked = requests(live, number)
        assert list(asked) == line["drawn"]
        (without,) = {tuple(content[protocol.SECURE][WITHOUT]) for content in asked.values()}
        out.append({*without})
        assert out[-1] == {*SITES} - {*asked}
        assert all(site["dev_loss"] == line["sites"]["bank"]["dev_loss"] for site in line["sites"].values())
    assert out[0] != out[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sites-per-round": 0.5}, r"= 0.5 draws 2 of 4 sites, but 3 have to open a sum .*; give 3 or more, or 0 for all"),
        (
            {**DRAWN, "method": "adapter-random", "cluster.number": 2, "privacy.min-cluster": 2},
            r"= 3 draws 3 of 4 sites: in round 1 1 sites of the .* cluster .* are left, and privacy.min-cluster = 2; give more",
        ),
        (
            {**DRAWN, "privacy.min-cluster": 4},
            r"= 3 draws 3 of 4 sites, but 4 have to open a sum",
        ),
    ],
)
def test_draws_too_small_for_a_sum_are_refused_before_any_training(
    changes: dict[str, Any], said: str, four_sites: dict[str, Any], tmp_path: Path
) -> None:
    live = InProcessGrid({**four_sites, **SECURE, **changes, "run-dir": str(tmp_path)}, 2)
    with pytest.raises(RunError, match=said):
        run_on(live, live.run_config)
    assert not requests(live, 1)


def test_norm_clipping_to_the_median_is_refused_with_secure_sums_and_to_a_length_is_not(four_sites: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"or 'norm-clip' with robust.clip-norm above 0, which is a length"):
        settings_from({**four_sites, **SECURE, "aggregation": "norm-clip"})
    assert settings_from({**four_sites, **SECURE, **CLIPPED}).clips_at_sites
    assert not settings_from({**four_sites, **CLIPPED}).clips_at_sites


def test_a_strategy_of_flowers_gets_what_the_drawn_sites_sent_decoded(
    four_sites: dict[str, Any], run_once: Callable[..., Any]
) -> None:
    short = {key: value for key, value in four_sites.items() if key not in ("backbone", "federation")}
    changes = {**DRAWN, **FEW_BITS, "method": "adapter-fed", "strategy": "flwr.serverapp.strategy:FedMedian", "rounds": 1}
    folder, live = run_once({**short, **changes})
    settings = settings_from(live.run_config)
    trainable = build_trainable(settings)
    about = trainable.sent_first, trainable.tensor_set, settings.code_up
    replies = [reply.content for reply in live.received if reply.metadata.message_type == protocol.TRAIN]
    ends = [decoded_update(opened(content[protocol.ARRAYS]), *about)[0] for content in replies]
    assert {str(content[protocol.TASK]["site"]) for content in replies} == {*rounds(folder)[1]["drawn"]}
    assert len(ends) == 3
    for name, array in tensors(folder).items():
        assert np.array_equal(array, np.median([end[name] for end in ends], axis=0))
