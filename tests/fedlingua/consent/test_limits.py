"""A site's limits: read from its file with their mistakes named, and each refused with key, asked and allowed."""

import dataclasses
import math
import tomllib
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.consent.limits import SiteLimits, num_measured, num_trained
from fedlingua.consent.site_file import read_site_file
from fedlingua.desk.deployment.site_setup import limits_text
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import KEYS

SETTINGS = settings_from(default_run_config())
SITE = '[[site]]\nname = "clinic"\ndirection = "de-fr"\ntsv = "text.tsv"\n[server]\naddress = "a:1"\n'


def of_file(folder: Path, table: str) -> SiteLimits:
    (folder / "site.toml").write_text(SITE + table)
    return read_site_file(folder / "site.toml").limits


def test_a_file_without_the_table_has_the_defaults(tmp_path: Path) -> None:
    assert of_file(tmp_path, "") == SiteLimits()


def test_what_init_writes_down_is_the_defaults(tmp_path: Path) -> None:
    assert tomllib.loads(limits_text()) == {"limits": {}}
    assert of_file(tmp_path, limits_text()) == SiteLimits()
    table = limits_text().partition("\n")[2].replace("# ", "")
    assert of_file(tmp_path, table) == SiteLimits()
    one_key = limits_text().replace("# min-dev = 50", "min-dev = 20")
    assert of_file(tmp_path, f'[node]\nstate = "state"\n{one_key}') == SiteLimits(min_dev=20)


def test_keys_of_the_table_are_read(tmp_path: Path) -> None:
    table = '[limits]\nsettings = "within-limits"\ntensor-sets = ["full"]\nmin-dev = 20\nmax-minutes = 5\n'
    read = of_file(tmp_path, table)
    assert (read.settings, read.tensor_sets, read.min_dev, read.max_minutes) == ("within-limits", ("full",), 20, 5.0)
    assert of_file(tmp_path, '[limits]\nmethods = ["adapter-fed"]\n').methods == ("adapter-fed",)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('tensor-sets = ["adapter"]', "[limits] tensor-sets: 'adapter' is not known; choose of adapters, full"),
        ('methods = ["adapters-fed"]', "[limits] methods: 'adapters-fed' is not known"),
        ("tensor-sets = 3", "tensor-sets = 3 is of type int; wanted a list of names"),
        ("tensor-sets = [3]", "tensor-sets = [3] is of type list; wanted a list of names"),
        ('settings = "any"', "settings = 'any' is not known; choose one of approved, within-limits"),
        ("min-tran = 3", "min-tran = 3: there is no such key; did you mean 'min-train'?"),
        ("min-train = true", "min-train = True is of type bool; wanted int"),
    ],
)
def test_a_mistake_in_the_table_is_named(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of_file(tmp_path, f"[limits]\n{table}\n")
    assert told in str(caught.value)


def test_the_defaults_of_a_run_are_within_the_defaults_of_a_site() -> None:
    SiteLimits().check_settings(SETTINGS)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(SiteLimits) if field.name.startswith("max_")])
def test_what_is_at_a_most_passes_and_what_is_above_is_refused_with_key_asked_and_allowed(name: str) -> None:
    key = name if name in ("max_tokens", "max_decode_tokens") else name.removeprefix("max_")
    if not hasattr(SETTINGS, key):
        assert name in ("max_minutes", "max_attempts", "max_runs")  # of messages and runs, not of settings
        return
    most: Any = getattr(SiteLimits(), name)
    SiteLimits().check_settings(dataclasses.replace(SETTINGS, **{key: most}))
    with pytest.raises(ExchangeError) as caught:
        SiteLimits().check_settings(dataclasses.replace(SETTINGS, **{key: 2 * most}))
    for word in (f"{KEYS[key]} = {2 * most:g}", f"{most:g} at most", f"[limits] {name.replace('_', '-')}"):
        assert word in str(caught.value)


def splits(train: int, dev: int, test: int) -> dict[str, Any]:
    return {"clinic": {"train": range(train), "dev": range(dev), "test": range(test)}}


def test_each_text_and_each_split_has_to_have_its_least() -> None:
    SiteLimits().check_text(splits(50, 50, 50), SETTINGS)
    for sizes, split in (((49, 50, 50), "train"), ((50, 49, 50), "dev"), ((50, 50, 49), "test")):
        with pytest.raises(ExchangeError, match=rf"answers on 49 sentences of clinic's {split};.*50 and more.*min-{split}"):
            SiteLimits().check_text(splits(*sizes), SETTINGS)
    second = {**splits(500, 500, 500), "court": splits(500, 3, 500)["clinic"]}
    with pytest.raises(ExchangeError, match="on 3 sentences of court's dev"):
        SiteLimits().check_text(second, SETTINGS)


def test_what_is_drawn_counts_and_not_what_it_is_drawn_from() -> None:
    drawn = dataclasses.replace(SETTINGS, sample_share=0.1)
    SiteLimits().check_text(splits(500, 50, 50), drawn)
    with pytest.raises(ExchangeError, match="on 49 sentences of clinic's train"):
        SiteLimits().check_text(splits(490, 50, 50), drawn)
    shared = dataclasses.replace(SETTINGS, evaluate_share=0.5)
    with pytest.raises(ExchangeError, match="on 40 sentences of clinic's dev"):
        SiteLimits().check_text(splits(500, 80, 50), shared)


def test_a_round_is_based_on_what_its_epochs_draw_and_at_most_on_all() -> None:
    assert (num_trained([191], SETTINGS), num_measured(24, SETTINGS)) == (191, 24)
    drawn = dataclasses.replace(SETTINGS, sample_share=0.4, evaluate_share=0.5)
    assert [num_trained([100, 11], dataclasses.replace(drawn, local_epochs=epochs)) for epochs in (1, 2, 3)] == [44, 88, 111]
    assert [num_measured(dev, drawn) for dev in (24, 1, 0)] == [12, 1, 0]


@pytest.mark.parametrize(("steps", "held"), [([16, 16], False), ([16, 16, 2], False), ([7, 7, 7], False), ([8, 8, 8], True)])
def test_an_update_needs_steps_and_each_of_them_examples(steps: list[int], held: bool) -> None:
    if held:
        SiteLimits().check_update(Counter(steps))
        return
    with pytest.raises(ExchangeError, match=r"\[limits\] min-(steps|batch)"):
        SiteLimits().check_update(Counter(steps))


def test_what_a_run_spends_on_choosing_is_bounded_and_not_refused() -> None:
    wishes = dataclasses.replace(SETTINGS, rounds=16, keep_passes=0)
    assert SiteLimits().bounded(wishes).keep_passes == 16
    bounded = SiteLimits(keep_passes=5, keep_minutes=10.0).bounded(wishes)
    assert (bounded.keep_choose, bounded.keep_passes, bounded.keep_minutes) == (True, 5, 10.0)
    assert SiteLimits(keep_minutes=10.0).bounded(dataclasses.replace(wishes, keep_minutes=3.0)).keep_minutes == 3.0
    assert SiteLimits(keep_minutes=10.0).bounded(dataclasses.replace(wishes, keep_minutes=0.0)).keep_minutes == 10.0
    assert not SiteLimits(keep_minutes=0.0).bounded(wishes).chooses
    assert not SiteLimits(keep_passes=0).bounded(wishes).chooses
    assert not SiteLimits(keep_choose=False).bounded(wishes).chooses
    assert not SiteLimits().bounded(dataclasses.replace(wishes, keep_choose=False)).chooses
    assert SiteLimits().bounded(wishes).hash() != wishes.hash()  # of what it does at the site, not of what is approved


def test_a_site_may_have_documents_hidden_only(run_config: dict[str, Any]) -> None:
    limits = SiteLimits(units=("document",))
    private = {**run_config, "method": "adapter-fed", "dp.epsilon": 8.0, "batch-size": 16}
    limits.check_settings(settings_from({**private, "dp.unit": "document"}))
    limits.check_settings(settings_from(run_config))
    with pytest.raises(ExchangeError, match=r"dp.unit = 'sentence'; this site's file allows document \(\[limits\] units\)"):
        limits.check_settings(settings_from(private))


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0])
def test_a_limit_is_a_finite_number(value: float) -> None:
    with pytest.raises(ConfigError, match=r"\[limits\] max-minutes = .*; wanted a finite number, 0 or more"):
        SiteLimits(max_minutes=value)


@pytest.mark.parametrize(
    ("changes", "train", "fault"),
    [
        ({"batch-size": 128, "accumulation": 8}, 556, "1 optimizer steps"),
        ({"batch-size": 16, "whole-steps": True}, 47, "2 optimizer steps"),
        ({"batch-size": 16, "whole-steps": False}, 47, ""),
        ({"batch-size": 4}, 100, r"steps on 4 \(smallest\), 4 \(usual\) and 4 \(largest\) examples; .* 8 and more in each"),
        # the last step of a pass is of one sentence, of seven, and of eight
        ({"batch-size": 25, "whole-steps": False}, 51, r"steps on 1 \(smallest\), 25 \(usual\) and 25 \(largest\) examples"),
        ({"batch-size": 11, "accumulation": 4, "whole-steps": False}, 95, r"steps on 7 \(smallest\), 44 \(usual\)"),
        ({"batch-size": 25, "whole-steps": False}, 58, ""),
        ({"batch-size": 17, "whole-steps": True}, 69, ""),
        ({"batch-size": 16, "local-epochs": 2, "whole-steps": True}, 47, ""),
        ({"batch-size": 16, "sample.share": 0.5, "whole-steps": False}, 64, "2 optimizer steps"),
    ],
)
def test_an_update_of_too_few_steps_is_foreseen(changes: dict[str, Any], train: int, fault: str) -> None:
    limits = SiteLimits(min_train=1, min_dev=1, min_test=1)
    settings = settings_from({**default_run_config(), "method": "adapter-fed", **changes})
    text = {"north": {"train": range(train), "dev": range(9), "test": range(9)}}
    with pytest.raises(ExchangeError, match=fault) if fault else nullcontext():
        limits.check_text(text, settings)


def test_steps_without_end_are_refused_before_any_is_planned() -> None:
    for key, value, limit in (("sample.least", 10**8, "max-sample-least"), ("sample.share", 1e6, "max-sample-share")):
        settings = settings_from({**default_run_config(), "method": "adapter-fed", key: value})
        with pytest.raises(ExchangeError, match=rf"the run asks for {key} = 1e\+0.; .* \(\[limits\] {limit}\)"):
            SiteLimits().check_settings(settings)


def test_noise_in_shares_needs_as_many_sites_as_a_secure_sum(tiny_run_config: dict[str, Any]) -> None:
    shared = {"method": "adapter-fed", "dp.epsilon": 8.0, "dp.noise": "shares", "privacy.sum": "secure", "local-epochs": 1}
    settings = settings_from({**tiny_run_config, **shared, "aggregation": "fed-avg"})
    SiteLimits().check_settings(settings)
    with pytest.raises(
        ExchangeError, match=r"dp.noise = 'shares' of 3 sites; .* allows 4 sites and more \(\[limits\] min-cluster\)"
    ):
        SiteLimits(min_cluster=4).check_settings(settings)
