"""A site of a finished run goes on by itself: of adapters that translate and of a whole encoder, through the command, to the same bytes."""

import csv
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.common.errors import RunError
from fedlingua.desk.cli.app import main
from fedlingua.desk.cli.personalize import personalize as personalize_command
from fedlingua.desk.personalization import personalize as personalize_module
from fedlingua.desk.personalization.personalize import MOST_POINTS, chosen_alpha, personalize, thinned
from fedlingua.desk.personalization.start import Personalizing, Start
from fedlingua.evaluation.scores import score_sums
from fedlingua.personalization import phase
from fedlingua.personalization.interpolation import ALPHAS, interpolated
from fedlingua.runs.folder import RunFolder

METRICS = {"translation": ["bleu", "chrf"], "masked-language": ["perplexity", "accuracy"]}


def go_on(folder: RunFolder, *sites: str, number: int | None = None, **how: Any) -> tuple[list[dict[str, Any]], str]:
    with redirect_stdout(io.StringIO()) as out, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "140")
        results = personalize_command(folder.directory, Personalizing(**how), None, list(sites), number)
    return results, out.getvalue()


def left(folder: RunFolder, site: str) -> Path:
    return folder.directory / "sites" / site / "personal"


def scores(folder: RunFolder, site: str) -> dict[str, Any]:
    return json.loads((folder.directory / "scores.json").read_text())["sites"][site]


@pytest.mark.parametrize(("kind", "site"), [("translating", "school"), ("masking", "hospital")])
def test_a_site_leaves_its_model_the_one_in_between_and_all_that_was_measured(kind, site, request):
    folder = request.getfixturevalue(kind)
    (about,), shown = go_on(folder, site, epochs=2)
    best = folder.read("run.json")["best_round"]
    start = Start.of(folder.directory, [site])
    federated = start.federated(site, start.run.trainable())
    personal, between = (load_file(left(folder, site) / f"{name}.safetensors") for name in ("personal", "interpolated"))
    assert about == json.loads((left(folder, site) / "personalization.json").read_text())
    assert (about["round"], about["seed"]) == (best, 2022)
    assert about["epochs"] == about["choice"]["candidates"]["own"]["best"] <= 2
    assert any(not np.array_equal(personal[name], array) for name, array in federated.items())
    wanted = interpolated(federated, personal, about["chosen_alpha"])
    assert {name: array.tobytes() for name, array in between.items()} == {n: a.tobytes() for n, a in wanted.items()}
    losses = {one["alpha"]: one["dev_loss"] for one in about["sweep"]}
    assert tuple(losses) == ALPHAS
    assert losses[about["chosen_alpha"]] == min(losses.values())
    assert about["apfl"]["path"][0] == [0, 0.5]
    assert about["apfl"]["path"][-1][1] == about["apfl"]["alpha"]
    assert list(about["test"]) == ["federated", "personal", "apfl", "chosen", "base", "kept", "alone"]
    chosen = {"base": "base", "alone": "alone", "federation": "federated", "own": "personal"}.get(about["choice"]["kept"])
    assert chosen is None or about["test"]["kept"] == about["test"][chosen]
    assert all(list(values) == METRICS[about["task"]] for values in about["test"].values())
    # What the run itself told of its best round on the same text.
    assert about["test"]["federated"] == {metric: scores(folder, site)[metric] for metric in METRICS[about["task"]]}
    assert str(left(folder, site) / "personalization.html") in shown


def test_an_ensemble_and_its_first_model_are_scored_each_by_itself(translating, monkeypatch):
    def perfect(model, codec, text, split, settings, guides):
        assert [guide.share for guide in guides] == [share]
        references = [pair.target for pair in text.splits[split]]
        return score_sums(references, references, text.direction.target)

    share = 0.9
    monkeypatch.setattr(phase.choice, "SHARES", (share,))
    monkeypatch.setattr(phase.choice, "LEAST_SENTENCES", 1)
    with monkeypatch.context() as keeping:
        keeping.setattr(phase.choice, "choose", lambda *_: phase.Choice(phase.choice.ALONE, phase.choice.ALONE))
        keeping.setattr(phase.choice, "is_shown", lambda gains: True)
        keeping.setattr(phase.choice, "gain", lambda *_: phase.choice.Gain(0.1, 0.05, 0.2))
        keeping.setattr(personalize_module, "translation_sums", perfect)
        (about,), _ = go_on(translating, "school", epochs=1)
    assert about["choice"]["kept"] == "ensemble"
    assert about["test"]["kept"]["bleu"] == pytest.approx(100)
    assert about["test"]["alone"]["bleu"] < 50
    assert (left(translating, "school") / "second.safetensors").is_file()
    with monkeypatch.context() as keeping:
        keeping.setattr(phase.choice, "is_shown", lambda gains: False)
        (about,), _ = go_on(translating, "school", epochs=1)
    assert about["choice"]["kept"] != "ensemble"
    assert not (left(translating, "school") / "second.safetensors").exists()


def test_the_test_text_is_named_by_what_it_was_measured_with(translating, masking):
    (translated,), _ = go_on(translating, "bank")
    assert translated["test_split"] == {
        "sentences": scores(translating, "bank")["sentences"],
        "signature": scores(translating, "bank")["signature"],
        "chrf_signature": scores(translating, "bank")["chrf_signature"],
    }
    (masked,), _ = go_on(masking, "court")
    wanted = {key: scores(masking, "court")[key] for key in ("sentences", "masked", "masks")}
    assert masked["test_split"] == wanted


@pytest.mark.parametrize(("kind", "site"), [("translating", "court"), ("masking", "court")])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(kind, site, request):
    folder = request.getfixturevalue(kind)

    def once(seed: int | None) -> tuple[bytes, ...]:
        (about,), _ = go_on(folder, site, seed=seed)
        told = json.dumps({key: value for key, value in about.items() if key not in ("seconds", "seed")})
        files = (left(folder, site) / f"{name}.safetensors" for name in ("personal", "interpolated"))
        return (told.encode(), *(file.read_bytes() for file in files))

    first, other = once(None), once(7)
    assert once(2022) == first
    assert other[1] != first[1]


def test_all_sites_make_one_table_with_their_mean(masking):
    results, shown = go_on(masking)
    assert [each["site"] for each in results] == ["hospital", "court"]
    rows = list(csv.DictReader((masking.directory / "personalization.csv").open()))
    assert [row["site"] for row in rows] == ["hospital", "court", "macro"]
    for metric in ("accuracy", "perplexity"):
        values = [float(row[f"{metric}_personal"]) for row in rows]
        assert values[2] == pytest.approx(sum(values[:2]) / 2, abs=1e-6)
    assert float(rows[0]["alpha_chosen"]) == results[0]["chosen_alpha"]
    written = (masking.directory / "personalization.md").read_text()
    assert "| site | alpha APFL | alpha dev | acc % federated |" in written
    assert f"personalized from round {results[0]['round']}, seed 2022" in written
    assert "macro" in shown


def test_one_site_alone_does_not_write_the_runs_table(translating):
    go_on(translating, "hospital")
    assert not (translating.directory / "personalization.csv").exists()


def test_a_site_goes_on_from_another_round_that_was_kept(translating):
    assert {2, 4, 5} <= set(translating.checkpoints.rounds())
    assert 1 not in translating.checkpoints.rounds() or translating.read("run.json")["best_round"] == 1
    (early,), _ = go_on(translating, "school", number=2)
    (late,), _ = go_on(translating, "school", number=4)
    assert (early["round"], late["round"]) == (2, 4)
    assert early["sweep"][0] != late["sweep"][0]


def test_the_runs_rate_and_passes_hold_unless_others_are_given(masking):
    (about,), _ = go_on(masking, "hospital")
    config, own = masking.read("run.json")["config"], about["choice"]["candidates"]["own"]
    assert (about["learning_rate"], about["optimizer"]) == (config["learning-rate"], "sgd")
    assert len(own["rates"]) <= config["rounds"]
    (other,), _ = go_on(masking, "hospital", epochs=1, learning_rate=0.5)
    assert other["learning_rate"] == 0.5
    assert len(other["choice"]["candidates"]["own"]["rates"]) == 1


@pytest.mark.parametrize(
    ("kind", "site", "rate"),
    [("translating", "school", 1e3), ("translating", "school", 1e30), ("masking", "court", 100.0), ("masking", "court", 1e3)],
)
def test_a_training_that_diverges_is_an_error_with_its_rate_and_leaves_what_was_there(kind, site, rate, request):
    folder = request.getfixturevalue(kind)
    go_on(folder, site)
    before = {path: path.read_bytes() for path in left(folder, site).iterdir()}
    told = f"site {site}: its own model diverged at the learning rate {rate:g}, so nothing is kept of it; give a smaller --learning-rate"
    with pytest.raises(RunError, match=re.escape(told)):
        go_on(folder, site, learning_rate=rate)
    assert {path: path.read_bytes() for path in left(folder, site).iterdir()} == before


def test_what_is_judged_is_judged_with_the_tensors_that_are_kept(translating):
    """The four models once more, by hand, from the files."""
    (about,), _ = go_on(translating, "bank", learning_rate=0.05, epochs=3)
    start = Start.of(translating.directory, ["bank"])
    tensors, again = personalize(start, "bank", start.run.trainable(), Personalizing(learning_rate=0.05, epochs=3))
    assert again["test"] == about["test"]
    kept = load_file(left(translating, "bank") / "personal.safetensors")
    assert all(np.array_equal(array, kept[name]) for name, array in tensors["personal"].items())


def test_of_equal_losses_the_alpha_nearest_to_the_federations_model_is_chosen():
    assert chosen_alpha({0.0: 2.0, 0.5: 1.0, 1.0: 1.0}) == 0.5
    assert chosen_alpha(dict.fromkeys(reversed(ALPHAS), 1.0)) == 0.0


def test_a_long_path_is_thinned_and_keeps_both_ends():
    path = [step / 5000 for step in range(5001)]
    found = thinned(path)
    assert len(found) <= MOST_POINTS + 1
    assert (found[0], found[-1]) == ([0, 0.0], [5000, 1.0])
    assert thinned([0.5, 0.4, 0.3]) == [[0, 0.5], [1, 0.4], [2, 0.3]]
    assert thinned([0.5]) == [[0, 0.5]]


def test_the_command_goes_on_and_says_what_is_wrong_without_a_traceback(translating, capsys, monkeypatch):
    where = ["fedlingua", "personalize", "--run", str(translating.directory)]
    monkeypatch.setattr("sys.argv", [*where, "--site", "bank", "--epochs", "1", "--alpha-rate", "0.5", "--seed", "4"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "chosen on dev" in capsys.readouterr().out
    about = json.loads((left(translating, "bank") / "personalization.json").read_text())
    assert (about["alpha_rate"], about["seed"]) == (0.5, 4)
    monkeypatch.setattr("sys.argv", [*where, "--site", "bnak"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "did you mean 'bank'" in capsys.readouterr().err
