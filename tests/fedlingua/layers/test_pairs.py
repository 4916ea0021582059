"""Every pair of optional layers: refused by name, or two rounds run, are killed in the second, and end in the same bytes when resumed.

docs/layers.md has the table of pairs that is tested here. After a change of layers, write it anew:

    PAIRS=write python -m pytest tests/fedlingua/layers/test_pairs.py
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedlingua.common.errors import ConfigError
from fedlingua.exchange import protocol
from fedlingua.layers import order
from fedlingua.layers.bounded_updates import JudgedUpdates, NormClip
from fedlingua.layers.buffer import Buffer
from fedlingua.layers.codes import Codes
from fedlingua.layers.drawn_sites import DrawnSites
from fedlingua.layers.gradient_clusters import GradientClusters
from fedlingua.layers.held_tensors import HeldTensors
from fedlingua.layers.layer import Layer, Layers
from fedlingua.layers.order import layers_of
from fedlingua.layers.overlap import Overlap
from fedlingua.layers.own import OwnLayers
from fedlingua.layers.private_training import PrivateTraining
from fedlingua.layers.probe import LearnedThreshold
from fedlingua.layers.secure_sum import SecureSums
from fedlingua.layers.selection import SelectedTensors
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from tests.faults.test_resume import final_bytes, losses, resume
from tests.federations import phrasebook_federation
from tests.in_process import InProcessGrid, run_on

PAGE = Path(__file__).parents[3] / "docs" / "layers.md"
SITES = 4
ON: dict[str, tuple[type[Layer], dict[str, Any]]] = {
    "overlap": (Overlap, {"overlap": "remove"}),
    "drawn sites": (DrawnSites, {"sites-per-round": 3}),
    "buffer": (Buffer, {"async.buffer": SITES}),
    "norm clipping": (NormClip, {"aggregation": "norm-clip", "robust.clip-norm": 0.02}),
    "judged updates": (JudgedUpdates, {"robust.max-ratio": 1.9}),
    "differential privacy": (PrivateTraining, {"dp.epsilon": 8.0}),
    "one's own": (OwnLayers, {"layers": "tests.own_layer:Halved"}),
    "selection": (SelectedTensors, {"send.rule": "dp-g"}),
    "codes": (Codes, {"send.code": "4bit"}),
    "secure sums": (SecureSums, {"privacy.sum": "secure"}),
}
"""Name of a layer -> its class, and the keys that turn it on."""
OFF: dict[str, Any] = {"method": "adapter-fed", "rounds": 2, "robust.max-ratio": 0.0, "send.code": "none", "keep.choose": False}
PAIRS = list(combinations(ON, 2))


def with_both(pair: tuple[str, str]) -> dict[str, Any]:
    one, two = pair
    return {**default_run_config(), **OFF, **ON[one][1], **ON[two][1]}


def refusal(pair: tuple[str, str]) -> str:
    """Why the settings refuse a pair; "" if they do not."""
    try:
        settings_from(with_both(pair))
    except ConfigError as error:
        return str(error)
    return ""


def are_layers(pair: tuple[str, str]) -> bool:
    """Whether both are layers of the run; under secure sums the sum itself judges, and leaves out tensors, by its mean."""
    here = [type(layer) for layer in layers_of(settings_from(with_both(pair))).list]
    return all(ON[name][0] in here for name in pair)


class Killed(InProcessGrid):
    """Copies the run's folder once all have been trained in round 2: a server that is killed then leaves this."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        ids = super().push_messages(messages)
        folder = Path(self.run_config["run-dir"])
        if any(m.metadata.message_type == protocol.TRAIN and m.content[protocol.TASK]["round"] == 2 for m in messages):
            shutil.copytree(folder, folder.with_name("killed"))
        return ids


@pytest.mark.parametrize("pair", [pytest.param(pair, id=" and ".join(pair)) for pair in PAIRS])
def test_a_pair_is_refused_by_name_or_runs_and_resumes_to_the_same_bytes(
    pair: tuple[str, str], least_run_config: Mapping[str, Any], tmp_path: Path
) -> None:
    if said := refusal(pair):
        assert all(any(key in said for key in ON[name][1]) for name in pair)
        return
    registers = ("hospital", "court", "school", "bank")
    (tmp_path / "four.toml").write_text(phrasebook_federation("four", **dict.fromkeys(registers, ("de-fr", 24))))
    here = {"backbone": least_run_config["backbone"], "federation": str(tmp_path / "four.toml"), "deadline.phase-s": 60.0}
    short = {key: least_run_config[key] for key in ("adapter.dim", "batch-size", "accumulation", "beam", "max-tokens")}
    config = {**with_both(pair), **here, **short, "max-decode-tokens": 4}
    whole = run_on(Killed({**config, "run-dir": str(tmp_path / "run")}, 2), {**config, "run-dir": str(tmp_path / "run")})
    killed = type(whole)(tmp_path / "killed")
    assert (killed.read("run.json") or {})["rounds"] == 1
    resumed = resume(config, killed)
    assert final_bytes(resumed) == final_bytes(whole)
    assert losses(resumed) == losses(whole)


def test_every_optional_layer_has_its_pairs() -> None:
    known = {each for each in vars(order).values() if isinstance(each, type) and issubclass(each, Layer)}
    of_methods = {GradientClusters, LearnedThreshold}
    assert known - {Layer, Layers, HeldTensors, *of_methods} == {layer for layer, _ in ON.values()}
    for name, (layer, keys) in ON.items():
        settings = settings_from({**default_run_config(), **OFF, **keys})
        assert [type(each) for each in layers_of(settings).list] == [layer, HeldTensors], name


def page() -> str:
    lines, reasons = list[str](), list[str]()
    for name, (layer, keys) in ON.items():
        what = " ".join((layer.__doc__ or "").split("\n\n")[0].split())
        given = ", ".join(f"`{key} = {value!r}`" for key, value in keys.items())
        lines.append(f"| {name} | {what} | {given} | `src/{layer.__module__.replace('.', '/')}.py` |")
    rows = [f"| |{'|'.join(f' {name} ' for name in list(ON)[1:])}|", f"|---|{'---|' * (len(ON) - 1)}"]
    for at, one in enumerate(list(ON)[:-1]):
        cells = [""] * at
        for two in list(ON)[at + 1 :]:
            if said := refusal((one, two)):
                reasons.append(said.splitlines()[0])
                cells.append(f"no ({len(reasons)})")
            else:
                cells.append("yes" if are_layers((one, two)) else "in the sum")
        rows.append(f"| {one} | {' | '.join(cells)} |")
    numbered = [f"{number}. {said}" for number, said in enumerate(reasons, start=1)]
    return TEXT.format(layers="\n".join(lines), pairs="\n".join(rows), reasons="\n".join(numbered))


TEXT = """# Layers

An optional feature of a round is a layer: both its halves, at the server and at the sites, stand in one file, and a run has a list of
layers, whose order is in `src/fedlingua/layers/order.py`. `tests/fedlingua/layers/test_pairs.py` compares this page;
`PAIRS=write python -m pytest tests/fedlingua/layers/test_pairs.py` writes it.

| layer | what it is | keys, with the values in the test | file |
|---|---|---|---|
{layers}

One more is in every run: `src/fedlingua/layers/held_tensors.py` names the tensors that a site already holds by their hash. Two belong to a
method: `src/fedlingua/layers/gradient_clusters.py` to adapter-gradients, `src/fedlingua/layers/probe.py` to MetaSend.

## Pairs

A pair with "yes" has run for two rounds with four sites, was killed in the second one and resumed, and ended in the same bytes as the run
that was not killed. "In the sum": so has this one, but under secure sums there is no such layer; the sum itself does its work, by the mean.
A pair with "no" is refused when the settings are read, with the reason below. The buffer holds as many updates as there are sites here,
since with fewer a resumed run asks the sites that were still training anew.

{pairs}

{reasons}
"""


def test_the_page_is_what_is_tested() -> None:
    tested = page()
    if os.environ.get("PAIRS") == "write":
        PAGE.write_text(tested, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == tested, "PAIRS=write python -m pytest tests/fedlingua/layers/test_pairs.py"
