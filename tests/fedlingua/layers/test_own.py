"""Layers of one's own, by the key `layers`: docs/guides/layer.md's, and what is refused."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import RecordDict

from fedlingua.common.errors import ConfigError, ExchangeError, RunError
from fedlingua.desk.cli.run import check_experiment
from fedlingua.exchange import protocol
from fedlingua.exchange.measured_change import NO_CHANGE
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Update
from fedlingua.layers.layer import Outgoing, Site, Training
from fedlingua.layers.order import layers_of
from fedlingua.layers.own import OwnLayers
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from tests.federations import TWO_SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run
from tests.pages import block

Config = dict[str, Scalar]
OWN = """
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.client import NumPyClient

from fedlingua.exchange.state import State
from fedlingua.layers.layer import Layer


class Bare(Layer):
    pass


class Narrow(Layer):
    def update(self, site, going):
        return going


class Counting(Layer):
    '''Notes what it sees of a training.'''

    def training(self, site, task, received, optimizer, train):
        def counted(**how):
            sums = train(**how)
            (site.folder / "seen.txt").write_text(" ".join(sorted(sums)))
            return sums

        return counted


class Taking(Layer):
    folders = ("mine", "rounds")

    def update(self, site, task, going):
        return going


class Noise(Layer):
    '''Noise at the server, and a count of its rounds, both of which a resumed run has too.'''

    def state(self, number, before, after):
        if number == 2 and Path(__file__).with_name("broken").exists():
            raise ValueError("alpha has to be positive")
        draws, last = np.random.default_rng([self.settings.seed, number]), after.of_layers.get("layer/noise", np.zeros(3))
        noised = {
            part: {
                cluster: {name: each + np.float32(draws.normal() + last[0]) for name, each in tensors.items()}
                for cluster, tensors in clusters.items()
            }
            for part, clusters in after.tensors.items()
        }
        values = {**after.values, "rounds-with-noise": after.values.get("rounds-with-noise", 0) + 1}
        return replace(after, tensors=noised, values=values, of_layers={**after.of_layers, "layer/noise": draws.normal(size=3)})


class Failing(Layer):
    def update(self, site, task, going):
        if site.site == "court":
            raise ValueError("alpha has to be positive")
        return going


class Wrong(Layer):
    '''Gives back what it was not given.'''

    def __init__(self, settings, hook="update", how=""):
        super().__init__(settings)
        self.hook, self.how = hook, how

    def wrong(self, tensors):
        name, first = next(iter(tensors.items()))
        ways = {
            "more": lambda: {**tensors, "mine": first},
            "fewer": lambda: {each: tensors[each] for each in tensors if each != name},
            "shape": lambda: {**tensors, name: np.append(first, np.float32(0))},
            "type": lambda: {**tensors, name: first.astype(np.float64)},
            "nan": lambda: {**tensors, name: first * np.float32(np.nan)},
            "none": lambda: None,
            "list": lambda: {**tensors, name: [0.0]},
        }
        return ways[self.how]()

    def update(self, site, task, going):
        if self.hook != "update":
            return going
        return None if self.how == "nothing" else replace(going, update=self.wrong(going.update))

    def replies(self, number, trained):
        if self.hook != "replies":
            return trained
        if self.how == "site":
            return {**trained, "nobody": next(iter(trained.values()))}
        if self.how == "nothing":
            return dict.fromkeys(trained)
        return {site: replace(each, update=replace(each.update, tensors=self.wrong(each.update.tensors))) for site, each in trained.items()}

    def state(self, number, before, after):
        if self.hook != "state":
            return after
        if self.how == "nothing":
            return None
        if self.how == "values":
            return replace(after, values={"mine": np.float32(1)})
        if self.how == "name":
            return replace(after, of_layers={"mine": np.zeros(1)})
        wrong = {part: {cluster: each and self.wrong(each) for cluster, each in of.items()} for part, of in after.tensors.items()}
        return replace(after, tensors=wrong)


class Reading(Layer):
    def reply(self, incoming):
        raise KeyError("mine")
"""


@pytest.fixture
def config(least_run_config: Mapping[str, Scalar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    (tmp_path / "my_layer.py").write_text(block("docs/guides/layer.md", 'python title="my_layer.py"'))
    (tmp_path / "own_layers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_layer", "own_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return {**least_run_config, "federation": str(tmp_path / "two.toml"), "method": "adapter-fed", "rounds": 1}


def last_tensors(folder: RunFolder) -> dict[str, Any]:
    stored = folder.checkpoints.load(folder.checkpoints.rounds()[-1]).tensors
    return {
        f"{part}/{name}": np.array(each)
        for part, of in stored.items()
        for each_of in of.values()
        for name, each in each_of.items()
    }


def bytes_of_updates(grid: InProcessGrid) -> int:
    records = [message.content.array_records.get(protocol.ARRAYS, {}) for message in grid.received]
    return sum(array.numpy().nbytes for record in records for array in record.values())


# --- What a layer of one's own does ----------------------------------------------------------------------------------------------


def test_the_guides_layer_sends_the_largest_changes_alone(config: Config, tmp_path: Path) -> None:
    config = {**config, "send.code": "8bit"}
    whole, all_sent = run(config, tmp_path / "whole")
    sparse, sent = run({**config, "layers": "my_layer:LargestChanges(share=0.05)"}, tmp_path / "sparse")
    assert bytes_of_updates(sent) < 0.4 * bytes_of_updates(all_sent)
    before, after, all_of_it = (
        last_tensors(folder) if number else start_of(folder) for folder, number in ((sparse, 0), (sparse, 1), (whole, 1))
    )
    changed = {name: (after[name] != before[name]).sum() for name in after}
    assert all(number <= 2 * max(1, round(0.05 * after[name].size)) for name, number in changed.items())  # of two sites
    assert sum((all_of_it[name] != before[name]).sum() for name in before) > 4 * sum(changed.values())


def start_of(folder: RunFolder) -> dict[str, Any]:
    stored = folder.checkpoints.load(0).tensors
    return {
        f"{part}/{name}": np.array(each)
        for part, of in stored.items()
        for each_of in of.values()
        for name, each in each_of.items()
    }


@pytest.mark.parametrize(
    "others", [{"send.rule": "top-k"}, {"privacy.sum": "secure"}, {"send.code": "4bit", "send.code-down": "same"}]
)
def test_it_stands_above_selection_codes_and_masks(config: Config, tmp_path: Path, others: Config) -> None:
    """Whatever selects, codes or masks an update, half of each change arrives where a layer halves it."""
    least = {"privacy.min-cluster": 2, "method": "adapter-fed", **others}
    plain, _ = run({**config, **least}, tmp_path / "plain")
    halved, _ = run({**config, **least, "layers": "tests.own_layer:Halved"}, tmp_path / "halved")
    start, whole, half = start_of(plain), last_tensors(plain), last_tensors(halved)
    moved, less = (np.concatenate([(each[name] - start[name]).ravel() for name in start]) for each in (whole, half))
    assert np.linalg.norm(less - moved / 2) < (0.35 if "send.code-down" in others else 0.01) * np.linalg.norm(moved)


@pytest.mark.parametrize(("epsilon", "seen"), [(0.0, "loss"), (8.0, "no loss")])
def test_under_differential_privacy_it_sees_what_may_leave_the_site(
    config: Config, tmp_path: Path, epsilon: float, seen: str
) -> None:
    run({**config, "layers": "own_layers:Counting", "dp.epsilon": epsilon, "rounds": 1}, tmp_path / "run")
    noted = (tmp_path / "run/sites/court/seen.txt").read_text().split()
    assert noted == ["seconds", "steps"] if seen == "no loss" else "nll_sum" in noted


def test_layers_stand_in_the_order_given(config: Config) -> None:
    two = settings_from({**config, "layers": ["own_layers:Noise", "my_layer:LargestChanges(share=0.2)"]})
    assert two.layers == "own_layers:Noise, my_layer:LargestChanges(share=0.2)"
    assert two.own_layers == ["own_layers:Noise", "my_layer:LargestChanges(share=0.2)"]
    names = [type(layer).__name__ for layer in layers_of(two).list]
    (own,) = (layer for layer in layers_of(two).list if type(layer).__name__ == "OwnLayers")
    assert names.index("OwnLayers") == names.index("HeldTensors") - 1  # of a run that neither codes nor masks
    assert [type(layer).__name__ for layer in own.list] == ["Noise", "LargestChanges"]  # type: ignore[attr-defined]
    assert own.list[1].share == 0.2  # type: ignore[attr-defined]


@pytest.mark.fault("resumed")
def test_a_layer_that_raises_at_the_server_fails_the_run_by_name_and_it_goes_on_once_mended(
    config: Config, tmp_path: Path
) -> None:
    config = {**config, "rounds": 3, "layers": "own_layers:Noise", "robust.max-ratio": 0.0}
    whole, _ = run(config, tmp_path / "whole")
    (tmp_path / "broken").touch()
    with pytest.raises(
        RunError, match=r"layers = 'own_layers:Noise': state raised ValueError at .*own_layers\.py.*alpha.*--resume"
    ):
        run(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.checkpoints.rounds()[-1] == 1
    (tmp_path / "broken").unlink()
    folder, _ = run({**config, "resume": True}, tmp_path / "run")
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole)
    assert folder.checkpoints.load(3).values["strategy"]["rounds-with-noise"] == 3


@pytest.mark.fault("refused")
def test_a_layer_that_raises_at_a_site_is_an_error_reply_and_the_round_goes_by_quorum(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**config, "layers": "own_layers:Failing"}
    folder, _ = run({**config, "quorum": 0.5}, tmp_path / "run")
    (failure,) = rounds(folder)[1]["failures"]
    assert failure["site"] == "court"
    assert "ValueError at" in failure["reason"]
    assert failure["reason"].endswith("update: alpha has to be positive")
    monkeypatch.setattr("clients.mods.is_deployed", lambda context: True)
    monkeypatch.setattr("clients.mods.site_file_of", lambda context: None)
    monkeypatch.setattr("clients.mods.log", lambda *given: None)
    with pytest.raises(RunError, match=r"court: .*ValueError; the site's log has the rest"):
        run(config, tmp_path / "deployed")


SET = TensorSet("two", (TensorSpec("e", (2, 2), "encoder", 0), TensorSpec("d", (3,), "decoder", 0)))
GIVEN = {"e": np.ones((2, 2), np.float32), "d": np.ones(3, np.float32)}


def given_to(config: Config, hook: str, way: str) -> Any:
    """What a layer gives that is wrong in this way, once it has passed the checks."""
    layers = OwnLayers(settings_from({**config, "layers": f"own_layers:Wrong(hook='{hook}', how='{way}')"}))
    layers.list[0].run = SimpleNamespace(tensor_set=SET)  # type: ignore[assignment]
    if hook == "update":
        site, going = SimpleNamespace(trainable=SimpleNamespace(tensor_set=SET)), Outgoing(RecordDict(), GIVEN, GIVEN, {})
        return layers.update(cast(Site, site), Task("a", "r", 1, 1), going)
    if hook == "replies":
        trained = {site: Training(Update(site, GIVEN, 1), {}, NO_CHANGE, "") for site in ("a", "b")}
        return layers.replies(1, trained)
    state = State({"encoder": {"all": {"e": GIVEN["e"]}}, "decoder": {"all": {"d": GIVEN["d"]}}, "shared": {"all": {}}})
    return layers.state(1, state, state)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("more", "mine"),
        ("fewer", "missing|gave the tensors|gave the encoder"),
        ("shape", "shape"),
        ("type", "float64; wanted float32"),
        ("nan", "NaN|not finite"),
        ("none", "NoneType|gave the encoder"),
        ("list", "list|shape"),
        ("nothing", "gave NoneType"),
    ],
)
@pytest.mark.parametrize("hook", ["update", "replies", "state"])
def test_what_a_layer_was_not_given_it_may_not_give(config: Config, hook: str, way: str, words: str) -> None:
    with pytest.raises(
        ExchangeError if hook == "update" else RunError, match=rf"layers = .own_layers:Wrong.*: {hook} gave "
    ) as told:
        given_to(config, hook, way)
    assert re.search(words, str(told.value))


@pytest.mark.parametrize(
    ("hook", "way", "words"),
    [
        ("replies", "site", "gave a, b, nobody; wanted a dict of those that count of a, b"),
        ("state", "values", "gave values that JSON cannot hold"),
        ("state", "name", r"gave of_layers\['mine'\]; wanted a name that is a str and begins with 'residual/' or 'layer/'"),
    ],
)
def test_nor_may_it_give_what_cannot_be_stored(config: Config, hook: str, way: str, words: str) -> None:
    with pytest.raises(RunError, match=rf"layers = .own_layers:Wrong.*: {hook} {words}"):
        given_to(config, hook, way)


@pytest.mark.fault("refused")
@pytest.mark.parametrize("hook", ["update", "replies"])
def test_a_run_ends_by_the_name_of_a_layer_that_gives_other_tensors(config: Config, tmp_path: Path, hook: str) -> None:
    with pytest.raises(
        RunError, match=rf"layers = .own_layers:Wrong.*: {hook} gave other tensors than it got: tensor .* is missing"
    ):
        run({**config, "layers": f"own_layers:Wrong(hook='{hook}', how='fewer')"}, tmp_path / "run")
    assert RunFolder(tmp_path / "run").checkpoints.rounds() == [0]


@pytest.mark.fault("refused")
def test_a_reply_that_a_layer_cannot_read_is_refused_by_its_name(config: Config, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"court: .*layers = 'own_layers:Reading': reply raised KeyError"):
        run({**config, "layers": "own_layers:Reading"}, tmp_path / "run")


# --- What is refused before anything is loaded ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("no_such_file:MyLayer", "layers = 'no_such_file:MyLayer': cannot import 'no_such_file'"),
        ("my_layer:LargestChange", "did you mean 'LargestChanges'"),
        ("own_layers:NumPyClient", "wanted a subclass of fedlingua.layers.layer.Layer"),
        ("own_layers:Bare", "Bare defines no hook; wanted one or more of join, begin"),
        ("own_layers:Narrow", r"Narrow\.update does not take what a run passes .*; wanted \(self, site, task, going\)"),
        ("own_layers:Taking", r"Taking\.folders has 'rounds', a folder of every site; give another name"),
        ("my_layer:LargestChanges(part=1)", r"LargestChanges cannot be made \(got an unexpected keyword argument 'part'\)"),
        ("MyLayer", "layers = 'MyLayer' is not known; give 'my_file:MyLayer' for a class in my_file.py"),
        ("my_layer:LargestChanges, own_layers", "is not known; give 'my_file:MyLayer'"),
        ("own_layers:Wrong(how='a'), own_layers:Wrong(how='b')", "has 'own_layers:Wrong' twice; give each layer once"),
    ],
)
def test_a_layer_that_does_not_fit_is_refused_before_a_site_is_asked(
    config: Config, tmp_path: Path, layers: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run({**config, "layers": layers}, tmp_path / "run")
    assert not (tmp_path / "run" / "sites.json").exists()


def test_where_nothing_travels_no_layer_stands(config: Config) -> None:
    with pytest.raises(
        ConfigError, match="layers = 'own_layers:Noise', and under method adapter-local nothing leaves a site; give ''"
    ):
        settings_from({**config, "method": "adapter-local", "layers": "own_layers:Noise"})


def test_a_resumed_run_keeps_its_layers(config: Config, tmp_path: Path) -> None:
    run(config, tmp_path / "run")
    for layers in ("own_layers:Noise", ""):
        given = {**config, "resume": True, "rounds": 2, "layers": layers}
        if layers:
            with pytest.raises(RunError, match=r"a resumed run keeps its settings, but layers = 'own_layers:Noise' \(was ''\)"):
                run(given, tmp_path / "run")
        else:
            run(given, tmp_path / "run")


def test_the_command_says_that_its_file_is_missing(config: Config, tmp_path: Path) -> None:
    experiment = tmp_path / "x.toml"
    experiment.write_text(f'federation = "{tmp_path}/two.toml"\nlayers = ["my_laier:LargestChanges"]\n')
    with pytest.raises(ConfigError, match=r"layers = 'my_laier:LargestChanges': there is no my_laier\.py"):
        check_experiment(experiment, None, None, None)
    with pytest.raises(ConfigError, match=r"layers = 'my_laier:More': there is no my_laier\.py"):
        check_experiment(experiment, None, ['layers=["my_laier:More"]'], None)


def test_a_run_without_layers_is_the_run_that_it_was(config: Config) -> None:
    without = settings_from(config)
    own = settings_from({**config, "layers": "own_layers:Noise"})
    assert own.hash() != without.hash() == settings_from({**config, "layers": []}).hash()
    assert own.hash_of_alone() == without.hash_of_alone()
