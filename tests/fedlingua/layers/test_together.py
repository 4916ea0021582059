"""Layers that stand beside each other in one run: what comes out is what comes out of a run without masks, or without codes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import join
from fedlingua.exchange.records import opened
from fedlingua.exchange.round_files import RoundFiles
from fedlingua.exchange.trainable import build_trainable
from fedlingua.layers import secure_site
from fedlingua.layers.codes import decoded_update
from fedlingua.layers.secure_site import SecureSite
from fedlingua.privacy.fixed_point import COUNTERS_PART, Group, decode, encode
from fedlingua.privacy.masks import MODELS, WITHOUT
from fedlingua.settings.checks import settings_from
from tests.federations import SITES
from tests.hostile.secure_table import CHOSEN, ROUNDS, SCALES, START, SUMS, Federation, models_of
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


@pytest.mark.parametrize(
    "changes",
    [DRAWN, CLIPPED, FEW_BITS, DRAWN | CLIPPED | FEW_BITS],
    ids=["drawn", "clipped", "few bits", "all three"],
)
def test_a_secure_sum_of_drawn_clipped_or_coded_changes_is_the_plain_mean_within_a_level(
    changes: dict[str, Any], four_sites: dict[str, Any], run_once: Callable[..., Any]
) -> None:
    short = {key: value for key, value in four_sites.items() if key not in ("backbone", "federation")}
    config = {**short, **SECURE, **changes, "rounds": 1}
    folder, live = run_once(config)
    plain, _ = run_once({**config, "privacy.sum": "plain", "robust.max-ratio": 0.0, "send.code": "none"})
    group = Group.of(4, settings_from(live.run_config).least_level)
    summed, mean, level = tensors(folder), tensors(plain), level_of(live, group.top)
    assert all(np.abs(summed[name] - mean[name]).max() <= level * 1.001 for name in mean)
    line, other = rounds(folder)[1], rounds(plain)[1]
    trained = line.get("drawn", SITES)
    assert line.get("drawn") == other.get("drawn")
    assert line["secure_sum"]["sites"] == len(trained)
    left_here = {site for site in SITES if list((folder.directory / "sites" / site / "rounding").glob("*"))}
    assert left_here == (set(trained) if changes is FEW_BITS else set())
    if "robust.clip-norm" in changes:
        assert [site for site in other["sites"] if "scaled_to" in other["sites"][site]] == trained
        assert level <= 2 * BOUND / group.top
    if (
        changes is FEW_BITS
    ):  # what rounding left out is at the sites, and added to the next change; one that is clipped stays as short
        files = (RoundFiles(folder.directory / "sites" / site / "rounding").load((1, 1)) for site in trained)
        left = [np.concatenate([each[part] for part in ("encoder", "decoder")]) for each in files]
        parts = build_trainable(settings_from(live.run_config)).tensor_set
        apart = [join({name: mean[name] - summed[name] for name in mean}, parts)[part] for part in ("encoder", "decoder")]
        assert np.abs(left).max() > level / 9
        assert np.allclose(np.mean(left, axis=0), np.concatenate(apart), atol=1e-6)


def test_a_code_of_few_bits_is_added_up_in_fewer_bytes(four_sites: dict[str, Any], run_once: Callable[..., Any]) -> None:
    short = {key: value for key, value in four_sites.items() if key not in ("backbone", "federation")}
    sizes = dict[str, int]()
    for code in ("none", "2bit", "4bit", "6bit"):
        _, live = run_once({**short, **SECURE, **FEW_BITS, "send.code": code, "rounds": 1})
        replies = [reply.content[protocol.ARRAYS] for reply in live.received if reply.metadata.message_type == protocol.TRAIN]
        (sizes[code],) = {sum(len(array.numpy()) for part, array in reply.items() if part != COUNTERS_PART) for reply in replies}
    parts, numbers = 2, build_trainable(settings_from(live.run_config)).tensor_set.num_parameters
    bits = {"none": 12, "2bit": 4, "4bit": 6, "6bit": 8}
    assert sizes == {code: bits[code] * (numbers + parts * max(4, 48 // bits[code])) // 8 for code in bits}


def test_what_rounding_leaves_out_of_a_change_is_in_a_later_one(tmp_path: Path) -> None:
    """A site whose change is always the same: its sum over rounds is off by no more than that of one round."""
    federation, group, left, total = Federation(tmp_path).begin(), Group.of(5, 1), dict[str, np.ndarray](), np.zeros(9)
    update = {name: start + np.float32(0.07) for name, start in START.items()}
    site_of = partial(SecureSite, tmp_path / "a", least=3, level=1)
    encoded = list[Any]()

    def seen(*given: Any) -> Any:
        encoded.append(encode(*given))
        return encoded[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(secure_site, "encode", seen)
        for number in range(1, ROUNDS + 1):
            site, asked = site_of(task=federation.site("a", number).task), {**SCALES, **models_of(START)}
            site.mask_update(update, START, CHOSEN, SUMS, {}, asked, seed=7, size=30, measured=START, left=left)
            total += decode(encoded[2 * number - 2][0], SCALES["encoder"], CHOSEN.sizes_of("encoder"), group)
            assert np.allclose(total + left["encoder"], number * 0.07, atol=1e-6)


@pytest.mark.parametrize("code", ["sign", "lossless", "4bit nearest", "4bit top 0.1", "4bit rank 2"])
def test_codes_with_places_or_scales_of_a_single_site_are_refused(code: str, four_sites: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"send.code = .* single site's; give '2bit' to '8bit', .* 'none' or 'auto'"):
        settings_from({**four_sites, **SECURE, "send.code": code})


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
