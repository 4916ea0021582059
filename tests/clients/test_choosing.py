"""Sites choose at the end of a run what they keep: in the scores, in what lies at the site, the same after a break, and never for more
bytes than the scores take."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from clients import translation
from clients.site_client import SiteClient
from fedlingua.common import cache
from fedlingua.desk.translating.models import RunModels, TrainedModel, delivered, delivered_second
from fedlingua.desk.translating.site_translations import read_site_translations
from fedlingua.desk.translating.translator import Translator
from fedlingua.evaluation.bootstrap import draws
from fedlingua.evaluation.ensemble import _Averaged
from fedlingua.evaluation.text_metrics import TEXT_METRICS
from fedlingua.exchange import protocol
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization import choice, phase
from fedlingua.personalization.passes import train_until_dev_stops
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Scalar, Settings
from fedlingua_lab.comparison.differences import paired
from tests.federations import phrasebook_federation
from tests.in_process import run

Config = dict[str, Scalar]


@pytest.fixture
def choosing(least_run_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two sites with little text, which is enough to choose on here."""
    monkeypatch.setattr(choice, "LEAST_SENTENCES", 5)
    (tmp_path / "two.toml").write_text(phrasebook_federation("two", hospital=("de-fr", 40), court=("pl-es", 32)))
    how = {"method": "adapter-fed", "federation": str(tmp_path / "two.toml"), "keep.choose": True, "keep.by": "loss"}
    return {**least_run_config, **how, "keep.passes": 2, "keep.rates": "1"}


def scores(folder: RunFolder) -> dict[str, Any]:
    return json.loads((folder.directory / "scores.json").read_text())


def at(folder: RunFolder, site: str) -> Path:
    return folder.directory / "sites" / site


def described(folder: RunFolder, site: str) -> dict[str, Any]:
    return json.loads((at(folder, site) / "choice" / "choice.json").read_text())


def always(name: str) -> Callable[..., choice.Choice]:
    """A choice that is always the same."""
    return lambda dev, by: choice.Choice(name, choice.ALONE)


def test_scores_have_all_four_models_and_the_site_keeps_the_chosen_one(choosing: Config, tmp_path: Path) -> None:
    folder, _ = run(choosing, tmp_path / "run")
    told, texts = scores(folder), read_site_translations(tmp_path / "run")
    bleu = TEXT_METRICS["bleu"]
    for site, entry in told["sites"].items():
        about = described(folder, site)
        assert entry["kept"] == about["kept"] in about["candidates"]
        assert {choice.BASE, choice.ALONE, choice.FEDERATION, choice.OWN} <= set(about["candidates"])
        # What is kept has the least dev loss, or it is the better of base and alone.
        losses = {name: each["dev_loss"] for name, each in about["candidates"].items() if "dev_loss" in each}
        assert entry["kept"] in (min(losses, key=losses.__getitem__), min((choice.BASE, choice.ALONE), key=losses.__getitem__))
        assert entry["reference"]["name"] == min((choice.BASE, choice.ALONE), key=losses.__getitem__)
        assert entry["reference"]["bleu"] == entry[f"{entry['reference']['name']}_bleu"]
        assert entry["gain"]["bleu"] == pytest.approx(entry["bleu"] - entry["reference"]["bleu"])
        assert entry["gain"]["low"] <= entry["gain"]["high"]
        # scores.json is of what the site keeps: its own translations say the same, and so do the tensors that lie there.
        kept = texts[site].hypothesis
        assert bleu.of(bleu.count(kept)) == pytest.approx(entry["bleu"])
        if entry["kept"] == entry["reference"]["name"]:
            assert (entry["gain"]["low"], entry["gain"]["high"]) == (0, 0)
        tensors, of = delivered(at(folder, site))
        assert of["kept"] == entry["kept"]
        used = RunModels(tmp_path / "run").of_site(site)
        assert used.load is not None
        assert all(np.array_equal(array, tensors[name]) for name, array in used.load().items())
    assert told["macro_alone_bleu"] == pytest.approx(np.mean([entry["alone_bleu"] for entry in told["sites"].values()]))
    assert told["macro_federated_bleu"] == pytest.approx(np.mean([entry["federated_bleu"] for entry in told["sites"].values()]))


def test_the_interval_is_the_paired_bootstrap_of_kept_and_base(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    """Against the comparison's own, on translations that the site stored, where no model could be trained alone."""
    monkeypatch.setattr(phase.Phase, "add_trained", lambda self, name, start, *more: None)
    monkeypatch.setattr(phase.choice, "choose", lambda dev, by: choice.Choice(choice.FEDERATION, choice.BASE))
    folder, _ = run(choosing, tmp_path / "run")
    bleu, texts = TEXT_METRICS["bleu"], read_site_translations(tmp_path / "run")
    for site, entry in scores(folder)["sites"].items():
        counts = [bleu.count(text) for text in (texts[site].base, texts[site].hypothesis)]
        by_hand = paired(*counts, bleu.score, draws(len(counts[0])))
        assert (entry["gain"]["low"], entry["gain"]["high"]) == pytest.approx((by_hand.low, by_hand.high))
        assert entry["bleu"] == entry["federated_bleu"]
        assert "alone_bleu" not in entry


@pytest.mark.parametrize("optimizer_state", ["fresh", "kept"])
def test_alone_is_the_very_model_of_a_run_in_which_sites_train_alone(
    choosing: Config, tmp_path: Path, optimizer_state: str
) -> None:
    choosing = {**choosing, "optimizer-state": optimizer_state}
    folder, _ = run(choosing, tmp_path / "run")
    alone, _ = run({**choosing, "method": "adapter-local", "rounds": 4}, tmp_path / "alone")
    for site in ("hospital", "court"):
        assert described(folder, site)["candidates"]["alone"]["best"] == alone.read("run.json")["best_round"][site]
        ours = load_file(at(folder, site) / "choice" / "alone.safetensors")
        theirs, _ = delivered(at(alone, site))
        assert {name: array.tobytes() for name, array in ours.items()} == {n: a.tobytes() for n, a in theirs.items()}
        assert scores(folder)["sites"][site]["alone_bleu"] == scores(alone)["sites"][site]["bleu"]
    assert "kept" not in scores(alone)["sites"]["court"]


def test_where_rounds_draw_parts_of_it_a_pass_is_over_the_whole_text(choosing: Config, tmp_path: Path) -> None:
    """Alone is then what it is where a round is a pass, in as many: two half rounds are one, and two more may follow."""
    parts = {"sample.share": 0.5, "sample.replacement": False, "rounds": 2}
    halves, _ = run({**choosing, **parts}, tmp_path / "halves")
    wholes, _ = run({**choosing, "rounds": 1}, tmp_path / "wholes")
    for site in ("hospital", "court"):
        assert described(halves, site)["candidates"]["alone"] == described(wholes, site)["candidates"]["alone"]
        assert len(described(halves, site)["candidates"]["alone"]["rates"]) <= 3


def test_a_site_trains_on_from_the_mean_of_the_last_rounds_where_that_is_better(
    choosing: Config, tiny_backbone: Path, tmp_path: Path
) -> None:
    far = {"backbone": str(tiny_backbone), "rounds": 3, "learning-rate": 1.0, "best-by": "last"}
    folder, _ = run({**choosing, **far}, tmp_path / "run")
    froms = {}
    for site in ("hospital", "court"):
        candidates = described(folder, site)["candidates"]
        federation, last = (candidates[name]["dev_loss"] for name in (choice.FEDERATION, choice.LAST_ROUNDS))
        assert federation != last
        own = json.loads((at(folder, site) / "choice" / "own.json").read_text())["dev_losses"][0]
        assert own == pytest.approx(min(federation, last), abs=1e-12)
        froms[site] = last < federation
    assert any(froms.values())


def test_a_site_that_dies_over_its_ensemble_ends_with_the_same_bytes(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(phase.choice, "choose", always(choice.FEDERATION))
    monkeypatch.setattr(phase.choice, "is_shown", lambda gains: True)
    monkeypatch.setattr(phase.choice, "gain", lambda *_: choice.Gain(0.1, 0.05, 0.2))
    whole, _ = run(choosing, tmp_path / "whole")
    beside_two_alone, calls = phase.Phase._beside_two_alone, list[str]()

    def dies(self: Any, chosen: choice.Choice) -> Any:
        calls.append("")
        if len(calls) == 2:
            raise KeyboardInterrupt
        return beside_two_alone(self, chosen)

    with monkeypatch.context() as dying:
        dying.setattr(phase.Phase, "_beside_two_alone", dies)
        with pytest.raises(KeyboardInterrupt):
            run(choosing, tmp_path / "broken")
    resumed, _ = run({**choosing, "resume": True}, tmp_path / "broken")
    for site in ("hospital", "court"):
        for name in ("adapter/adapter.safetensors", "second.safetensors", "translations.tsv"):
            files = [at(folder, site) / name for folder in (whole, resumed)]
            assert files[0].read_bytes() == files[1].read_bytes()
    assert scores(resumed)["sites"] == scores(whole)["sites"]


@pytest.mark.parametrize("where", [(Trainable, "second"), (_Averaged, "__call__")], ids=["loading", "translating"])
def test_two_models_that_run_out_of_memory_are_no_ensemble(
    choosing: Config, tmp_path: Path, monkeypatch, where: tuple[Any, str]
) -> None:
    monkeypatch.setattr(phase.choice, "choose", always(choice.FEDERATION))
    monkeypatch.setattr(phase.choice, "gain", lambda *_: choice.Gain(0.1, 0.05, 0.2))

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(*where, full)
    folder, _ = run({**choosing, "keep.by": "both", "keep.passes": 1}, tmp_path / "run")
    assert {entry["kept"] for entry in scores(folder)["sites"].values()} == {choice.FEDERATION}


def test_the_time_is_shared_among_what_trains(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    """Four passes alone and two on from the federation, each of a minute, in three: two and one."""
    train, clock = SiteClient._train_model, [0.0]

    def minute(*args: Any, **more: Any) -> Any:
        clock[0] += 60
        return train(*args, **more)

    monkeypatch.setattr(SiteClient, "_train_model", minute)
    monkeypatch.setattr(phase, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    folder, _ = run({**choosing, "keep.minutes": 3, "keep.patience": 9}, tmp_path / "run")
    for site in ("hospital", "court"):
        candidates = described(folder, site)["candidates"]
        assert [(len(candidates[name]["rates"]), candidates[name]["cut_short"]) for name in (choice.ALONE, choice.OWN)] == [
            (2, True),
            (1, True),
        ]


def test_a_site_that_dies_in_the_phase_has_the_federations_model_and_chooses_the_same_at_resume(
    choosing: Config, tmp_path: Path, monkeypatch
) -> None:
    whole, _ = run(choosing, tmp_path / "whole")
    shutil.rmtree(cache.base_results_dir().with_name("alone"))
    calls: list[str] = []

    def dies(*args: Any, **more: Any) -> Any:
        calls.append("")
        if len(calls) == 4:  # the second site's own model
            raise KeyboardInterrupt
        return train_until_dev_stops(*args, **more)

    monkeypatch.setattr(phase, "train_until_dev_stops", dies)
    with pytest.raises(KeyboardInterrupt):
        run(choosing, tmp_path / "broken")
    died = next(site for site in ("hospital", "court") if not (tmp_path / "broken/sites" / site / "choice/choice.json").exists())
    left, about = delivered(tmp_path / "broken/sites" / died)
    assert about["kept"] == choice.FEDERATION
    broken = RunFolder(tmp_path / "broken")
    best = broken.read("run.json")["best_round"]
    (cluster,) = broken.checkpoints.load(best).tensors["encoder"].values()
    assert all(np.array_equal(array, left[name]) for name, array in cluster.items())
    trained = (tmp_path / "broken/sites" / died / "choice/alone.safetensors").stat().st_mtime_ns
    resumed, _ = run({**choosing, "resume": True}, tmp_path / "broken")
    assert (tmp_path / "broken/sites" / died / "choice/alone.safetensors").stat().st_mtime_ns == trained
    for site in ("hospital", "court"):
        files = [at(folder, site) / "adapter" / "adapter.safetensors" for folder in (whole, resumed)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert scores(resumed)["sites"] == scores(whole)["sites"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor-set": "lora"},
        {"method": "model-fed", "learning-rate": 1e-3},
    ],
)
def test_a_site_that_keeps_the_base_has_the_base(choosing: Config, tmp_path: Path, monkeypatch, changes: Config) -> None:
    monkeypatch.setattr(phase.choice, "choose", always(choice.BASE))
    folder, _ = run({**choosing, **changes, "rounds": 1, "keep.passes": 1}, tmp_path / "run")
    from fedlingua.desk.translating.decoding import Decoding
    from fedlingua.desk.translating.translator import Translator

    for site, entry in scores(folder)["sites"].items():
        assert (entry["kept"], entry["bleu"]) == (choice.BASE, entry["base_bleu"])
        text = read_site_translations(tmp_path / "run")[site]
        translator = Translator(RunModels(tmp_path / "run").of_site(site), Decoding())
        assert list(translator.translate(text.base.sources[:5])) == list(text.base.hypotheses[:5])


@pytest.mark.parametrize("name", [choice.OWN_FEDERATION, choice.OWN_ALONE + choice.BY_PART, choice.LAST_ROUNDS])
def test_each_kind_of_mixture_can_be_kept(choosing: Config, tmp_path: Path, monkeypatch, name: str) -> None:
    """Alphas that the search would not end with are put in its place."""
    mixed = ({"encoder": 0.5, "decoder": 0.5}, {"encoder": 0.25, "decoder": 1.0})
    monkeypatch.setattr(phase, "search_alphas", lambda parts, loss, ends: mixed)
    monkeypatch.setattr(phase.choice, "choose", always(name))
    count = 3 if name == choice.LAST_ROUNDS else 1
    folder, _ = run({**choosing, "rounds": count, "keep.ensemble": False}, tmp_path / "run")
    for site, entry in scores(folder)["sites"].items():
        assert entry["kept"] == name
        own, alone = (load_file(at(folder, site) / "choice" / f"{each}.safetensors") for each in ("own", "alone"))
        kept, _ = delivered(at(folder, site))
        if name == choice.OWN_ALONE + choice.BY_PART:
            for tensor, array in kept.items():
                share = np.float32(0.25 if ".encoder." in f".{tensor}" else 1.0)
                assert np.allclose(array, share * own[tensor] + (1 - share) * alone[tensor], atol=1e-7)
        else:
            assert any(not np.array_equal(array, own[tensor]) for tensor, array in kept.items())


def test_where_no_pass_makes_the_federations_model_better_it_is_mixed_with_alone_as_it_is(
    choosing: Config, tmp_path: Path, monkeypatch
) -> None:
    add_trained = phase.Phase.add_trained
    monkeypatch.setattr(phase.Phase, "add_trained", lambda self, name, *of: name == choice.OWN or add_trained(self, name, *of))
    monkeypatch.setattr(phase, "search_alphas", lambda parts, loss, ends: [{"encoder": 0.25, "decoder": 0.25}])
    monkeypatch.setattr(phase.choice, "choose", always(choice.FEDERATION_ALONE))
    folder, _ = run({**choosing, "rounds": 1, "keep.ensemble": False}, tmp_path / "run")
    (federation,) = folder.checkpoints.load(1).tensors["encoder"].values()
    for site, entry in scores(folder)["sites"].items():
        assert entry["kept"] == choice.FEDERATION_ALONE
        alone, (mixed, _) = load_file(at(folder, site) / "choice/alone.safetensors"), delivered(at(folder, site))
        for name, array in federation.items():
            assert np.allclose(mixed[name], 0.25 * array + 0.75 * alone[name], atol=1e-7)
            assert not np.array_equal(array, alone[name])


@pytest.mark.parametrize("method", ["adapter-fed", "model-fed"])
@pytest.mark.parametrize("chosen", [choice.FEDERATION, choice.ALONE, choice.OWN_ALONE])
def test_an_ensemble_is_kept_delivered_and_scored_and_translates_as_it_was_scored(
    choosing: Config, tmp_path: Path, monkeypatch, chosen: str, method: str
) -> None:
    monkeypatch.setattr(phase.choice, "choose", always(chosen))
    monkeypatch.setattr(phase.choice, "is_shown", lambda gains: True)
    monkeypatch.setattr(phase.choice, "SHARES", (0.5,))
    monkeypatch.setattr(phase.choice, "gain", lambda *_: choice.Gain(0.1, 0.05, 0.2))
    half = {"encoder": 0.5, "decoder": 0.5}
    mixtures = (half,) if chosen == choice.OWN_ALONE else ({"encoder": 0.0, "decoder": 0.0},)
    monkeypatch.setattr(phase, "search_alphas", lambda parts, loss, ends: mixtures)
    rate = 0.02 if method == "adapter-fed" else 1e-3
    how = {"backbone": "demo", "method": method, "learning-rate": rate, "rounds": 1, "keep.passes": 1, "max-decode-tokens": 24}
    folder, _ = run({**choosing, **how, "keep.by": "both"}, tmp_path / "run")
    for site, entry in scores(folder)["sites"].items():
        about = described(folder, site)
        assert entry["kept"] == about["kept"] == choice.ENSEMBLE
        others = {name: each["dev_loss"] for name, each in about["candidates"].items() if "dev_loss" in each}
        without_alone = {choice.FEDERATION, choice.OWN, choice.OWN_FEDERATION} & set(others)
        told = about["ensemble"]
        if chosen == choice.FEDERATION:
            assert (told["first"], told["second"]) == (choice.FEDERATION, choice.ALONE)
        else:  # alone, or a mixture with it, which is not averaged with itself
            assert (told["first"], told["second"]) == (choice.ALONE, min(without_alone, key=others.__getitem__))
        assert set(told["gains"]) == {"loss", "chrf"}
        assert {"dev_loss", "dev_chrf"} <= set(about["candidates"][choice.ENSEMBLE])
        alone = load_file(at(folder, site) / "choice" / "alone.safetensors")
        ours, theirs = delivered(at(folder, site))[0], delivered_second(at(folder, site))
        where = theirs if told["second"] == choice.ALONE else ours
        assert all(np.array_equal(array, where[name]) for name, array in alone.items())
        # The run's folder and the site's own translate as the site did when it was scored; one model alone does not.
        text = read_site_translations(tmp_path / "run")[site]
        models = [RunModels(tmp_path / "run").of_site(site), TrainedModel.of_delivery(at(folder, site))]
        sources, scored = list(text.base.sources), list(text.hypothesis.hypotheses)
        for model in models:
            assert Translator(model).translate(sources) == scored
        assert Translator(replace(models[0], second=None)).translate(sources) != scored
    if chosen == choice.FEDERATION:
        without, _ = run({**choosing, **how, "keep.ensemble": False}, tmp_path / "run-without")
        assert {entry["kept"] for entry in scores(without)["sites"].values()} == {chosen}
        for site in ("hospital", "court"):
            assert "ensemble" not in delivered(at(without, site))[1]
            assert not (at(without, site) / "second.safetensors").exists()


def test_two_models_are_compared_with_two_that_the_site_trained_alone(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    """The second is trained like the first with other draws; the site keeps this ensemble where none of the federation's is better."""
    shown, better = {"hospital": iter([True, False, False]), "court": iter([True, True])}, choice.better_without
    sites = iter(["hospital"] * 3 + ["court"] * 2)
    monkeypatch.setattr(phase.choice, "choose", always(choice.FEDERATION))
    monkeypatch.setattr(phase.choice, "is_shown", lambda gains: next(shown[next(sites)]))
    monkeypatch.setattr(phase.choice, "gain", lambda *_: choice.Gain(0.1, 0.05, 0.2))
    of_two = lambda dev, by: choice.ALONE_ENSEMBLE if choice.ALONE_ENSEMBLE in dev else better(dev, by)  # noqa: E731
    monkeypatch.setattr(phase.choice, "better_without", of_two)
    folder, _ = run(
        {**choosing, "backbone": "demo", "learning-rate": 3e-3, "rounds": 1, "max-decode-tokens": 24}, tmp_path / "run"
    )
    told = scores(folder)
    for site, entry in told["sites"].items():
        about, kept = described(folder, site), {"hospital": choice.ALONE_ENSEMBLE, "court": choice.ENSEMBLE}[site]
        assert (entry["kept"], about["kept"], about["reference"], about["single"]) == (
            kept,
            kept,
            choice.ALONE_ENSEMBLE,
            choice.FEDERATION,
        )
        assert entry["reference"] == {name: entry[f"alone_ensemble_{name}"] for name in ("bleu", "chrf")} | {
            "name": choice.ALONE_ENSEMBLE
        }
        assert entry["gain"]["bleu"] == pytest.approx(entry["bleu"] - entry["alone_ensemble_bleu"])
        assert entry["single_bleu"] == entry["federated_bleu"]
        files = [load_file(at(folder, site) / "choice" / f"{name}.safetensors") for name in (choice.ALONE, choice.SECOND_ALONE)]
        assert all(not np.array_equal(array, files[1][name]) for name, array in files[0].items() if array.any())
        passes = [about["candidates"][name]["rates"] for name in (choice.ALONE, choice.SECOND_ALONE)]
        assert len(passes[0]) <= 3 >= len(passes[1])
        if kept == choice.ALONE_ENSEMBLE:
            assert (entry["gain"]["low"], entry["gain"]["high"]) == (0, 0)
            of_site = delivered(at(folder, site))[0], delivered_second(at(folder, site))
            assert all(
                np.array_equal(mine[name], array) for mine, of in zip(of_site, files, strict=True) for name, array in of.items()
            )
            text = read_site_translations(tmp_path / "run")[site]
            translator = Translator(RunModels(tmp_path / "run").of_site(site))
            assert translator.translate(list(text.base.sources)) == list(text.hypothesis.hypotheses)
    for side in ("reference", "single"):
        value = {"reference": lambda entry: entry["reference"]["bleu"], "single": lambda entry: entry["single_bleu"]}[side]
        assert told[f"macro_{side}_bleu"] == pytest.approx(np.mean([value(entry) for entry in told["sites"].values()]))


def test_without_time_for_a_second_model_alone_no_ensemble_is_kept(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(phase.choice, "choose", always(choice.FEDERATION))
    monkeypatch.setattr(phase.choice, "is_shown", lambda gains: True)
    monkeypatch.setattr(phase.choice, "gain", lambda *_: choice.Gain(0.1, 0.05, 0.2))
    add = phase.Phase.add_trained
    monkeypatch.setattr(
        phase.Phase, "add_trained", lambda self, name, *more: name == choice.SECOND_ALONE or add(self, name, *more)
    )
    folder, _ = run(choosing, tmp_path / "run")
    assert {entry["kept"] for entry in scores(folder)["sites"].values()} == {choice.FEDERATION}


def test_no_ensemble_is_kept_where_its_gain_is_not_shown_or_the_base_is_better(
    choosing: Config, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(phase.choice, "is_shown", lambda gains: False)
    folder, _ = run({**choosing, "keep.passes": 1}, tmp_path / "run")
    assert all(entry["kept"] != choice.ENSEMBLE for entry in scores(folder)["sites"].values())
    assert all(described(folder, site)["ensemble"]["share"] in choice.SHARES for site in ("hospital", "court"))
    monkeypatch.setattr(phase.choice, "choose", lambda dev, by: choice.Choice(choice.FEDERATION, choice.BASE))
    worse, _ = run({**choosing, "keep.passes": 1}, tmp_path / "base")
    assert all(described(worse, site)["ensemble"] is None for site in ("hospital", "court"))


def test_masked_text_is_chosen_by_loss_and_reported_by_perplexity(four_texts: Config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(choice, "LEAST_SENTENCES", 1)
    masked = {"method": "adapter-fed", "tensor-set": "lora", "keep.choose": True, "keep.passes": 1, "rounds": 1}
    folder, _ = run({**four_texts, **masked}, tmp_path / "run")
    told = scores(folder)
    for site, entry in told["sites"].items():
        assert described(folder, site)["by"] == "loss"
        assert entry["reference"]["name"] in (choice.BASE, choice.ALONE)
        assert entry["gain"]["perplexity"] == pytest.approx(entry["reference"]["perplexity"] - entry["perplexity"])
        assert entry["gain"]["low"] <= entry["gain"]["perplexity"] <= entry["gain"]["high"]
    assert told["macro_federated_perplexity"] > 0


def test_nothing_but_the_scores_becomes_longer_on_the_wire(choosing: Config, tmp_path: Path) -> None:
    _, with_choice = run(choosing, tmp_path / "with")
    _, without = run({**choosing, "keep.choose": False}, tmp_path / "without")

    def sizes(messages: list[Any], finish: bool) -> list[int]:
        chosen = [each for each in messages if (each.metadata.message_type == protocol.FINISH) == finish]
        return sorted(sum(len(record.deflate()) for record in each.content.values()) for each in chosen)

    assert sizes(with_choice.received, False) == sizes(without.received, False)
    assert sizes(with_choice.sent, True) == sizes(without.sent, True)
    more = sizes(with_choice.received, True)[-1] - sizes(without.received, True)[-1]
    assert 0 < more < 2000


def test_where_a_site_may_not_choose_it_keeps_what_it_is_sent(choosing: Config, tmp_path: Path, monkeypatch) -> None:
    """As under keep-choose = false of its limits: the server takes the shorter reply as well."""
    from clients.node import SimulatedNode
    from fedlingua.consent.limits import SiteLimits

    begin = SimulatedNode.__init__

    def bounded(self: SimulatedNode, settings: Any, context: Any) -> None:
        begin(self, SiteLimits(keep_choose=False).bounded(settings), context)

    monkeypatch.setattr(SimulatedNode, "__init__", bounded)
    folder, _ = run(choosing, tmp_path / "run")
    assert all("kept" not in entry for entry in scores(folder)["sites"].values())


def test_alone_falls_along_a_schedule_as_long_as_the_federations(
    choosing: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four rounds are a pass here; a schedule over four passes would leave alone near its first rate."""
    spans, train = list[tuple[int, int]](), SiteClient._train_model

    def noting(self: SiteClient, settings: Settings, seed: str, this_round: tuple[int, int], *more: Any) -> Any:
        if settings.local_epochs == 1 and not settings.sample_share:  # a pass of the last phase
            spans.append(this_round)
        return train(self, settings, seed, this_round, *more)

    monkeypatch.setattr(SiteClient, "_train_model", noting)
    draws_parts = {"sample.share": 0.25, "sample.replacement": False, "rounds": 4, "schedule": "linear", "keep.passes": 1}
    run({**choosing, **draws_parts}, tmp_path / "run")
    assert set(spans) == {(1, 1), (2, 2)}


def test_the_last_phase_is_estimated_after_every_round_and_each_site_tells_its_steps(choosing: Config, tmp_path: Path) -> None:
    folder, _ = run({**choosing, "rounds": 2, "keep.minutes": 50}, tmp_path / "run")
    events = [json.loads(line) for line in (folder.directory / "progress.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == [0, 1, 2]
    assert all(event["last_phase_s"] > 0 for event in rounds[1:])  # round 0 trains nothing, so nothing follows from its time
    for site in ("hospital", "court"):
        steps = [event for event in events if event["event"] == "site" and event["site"] == site]
        told = " ".join(event["text"] for event in steps)
        assert all(part in told for part in ("trains alone", "alone, pass 1", "trains on", "keeps", "scores federation"))
        assert (shares := [event["done"] for event in steps]) == sorted(shares)
        assert shares[0] == 0 < shares[1] < shares[-1] < 1


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Caches of this test's own; what trains and translates, in order."""
    work, train, translate = list[str](), phase.train_until_dev_stops, translation.translations
    monkeypatch.setattr("fedlingua.common.cache.base_results_dir", lambda: tmp_path / "base-results")
    monkeypatch.setattr(phase, "train_until_dev_stops", lambda *of: work.append("train") or train(*of))
    monkeypatch.setattr(translation, "translations", lambda *of: work.append("translate") or translate(*of))
    return work


def test_another_run_and_method_finds_what_was_trained_alone_and_ends_in_the_same_bytes(
    choosing: Config, tmp_path: Path, own_caches: list[str]
) -> None:
    other = {**choosing, "method": "adapter-families", "beam": 2}
    run(choosing, tmp_path / "first")
    assert own_caches.count("train") == 2 * 2
    found, _ = run(other, tmp_path / "found")
    assert own_caches.count("train") == 3 * 2  # own alone
    told = (found.directory / "progress.jsonl").read_text()
    assert told.count("finds what was trained alone in an earlier run") == 2
    shutil.rmtree(tmp_path / "alone")
    shutil.rmtree(tmp_path / "base-results")
    made, _ = run(other, tmp_path / "made")
    assert own_caches.count("train") == 5 * 2
    for site in ("hospital", "court"):
        for name in ("choice/alone.safetensors", "choice/alone.json", "adapter/adapter.safetensors", "translations.tsv"):
            assert (at(found, site) / name).read_bytes() == (at(made, site) / name).read_bytes()
    assert scores(found)["sites"] == scores(made)["sites"]
    # With other text at a site that site finds nothing.
    (tmp_path / "more.toml").write_text(phrasebook_federation("two", hospital=("de-fr", 44), court=("pl-es", 32)))
    run({**other, "federation": str(tmp_path / "more.toml")}, tmp_path / "more")
    assert own_caches.count("train") == 5 * 2 + 3


def test_models_with_the_same_tensors_translate_once(
    choosing: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_caches: list[str]
) -> None:
    monkeypatch.setattr(phase.Phase, "add_trained", lambda self, name, start, *more: self.add(name, lambda: start))
    monkeypatch.setattr(phase.choice, "choose", always(choice.OWN))
    folder, _ = run({**choosing, "keep.ensemble": False}, tmp_path / "run")
    assert own_caches == ["translate"] * 2 * 3  # base; federation and own; alone
    for entry in scores(folder)["sites"].values():
        assert (entry["kept"], entry["bleu"]) == (choice.OWN, entry["federated_bleu"])
