"""What an owner signs: every line, for each method, beside what the run then does."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fedlingua.consent.approval import sends
from fedlingua.consent.limits import SiteLimits
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SplitRules
from fedlingua.desk.cli.site import server_sees
from fedlingua.desk.deployment.run_words import in_words
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.methods import METHODS
from tests.in_process import rounds

RULES = TextRules(SplitRules("shared-side"))
DEPLOYED = [name for name, method in METHODS.items() if not method.pooled]
RUNS: list[dict[str, Any]] = [
    {"method": "base"},
    {"method": "adapter-local", "score-split": "dev"},
    {"method": "adapter-fed", "evaluate-every": 2, "keep.ensemble": False, "keep.passes": 3, "rounds": 3},
    {"method": "adapter-random", "local-epochs": 2},
    {"method": "adapter-families", "cluster.parts": "encoder", "cluster.least": 1},
    {"method": "fixed-g", "rounds": 1},
    {"method": "metasend-l", "keep.choose": False, "robust.max-ratio": 0.0},
    {"method": "server-adam", "sample.share": 0.5, "sample.replacement": False, "rounds": 3},
]


def settings_of(**changes: Any) -> Settings:
    return settings_from({**default_run_config(), **changes})


def line(settings: Settings, start: str, rules: TextRules = RULES) -> str:
    """The only line that begins so, or ""."""
    found = [words for words in in_words(settings, rules) if words.startswith(start)]
    assert len(found) <= 1, found
    return found[0] if found else ""


def number(pattern: str, words: str) -> int:
    found = re.search(pattern, words)
    assert found, (pattern, words)
    return int(found[1])


def events(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    written = map(json.loads, (folder.directory / "progress.jsonl").read_text().splitlines())
    return [event for event in written if event["event"] == kind]


@pytest.mark.parametrize("changes", RUNS, ids=lambda changes: changes["method"])
def test_a_run_does_what_its_lines_say(run_once: Callable[[Mapping[str, Any]], Any], changes: dict[str, Any]) -> None:
    folder, _ = run_once(changes)
    settings = settings_from(folder.read("run.json")["config"])
    asked = [(event["phase"], event["round"]) for event in events(folder, "phase")]
    trained = [number for phase, number in asked if phase == "train"]

    method, at_most = line(settings, f"method {settings.method}: "), line(settings, "at most ")
    assert ("nothing trains" in method) == (not trained) == (not at_most)
    for part, groups in folder.read("clusters.json").items():
        alone = all(len(sites) == 1 for sites in groups.values())
        clustered = len(groups) > 1 and not alone and part != "shared"
        assert (alone and bool(trained)) == ("nothing is averaged with other sites" in method)
        named = re.search(r"averages (encoder and decoder each|the encoder) over the sites", method)
        assert clustered == bool(named and part in named[1]), (part, method)
    assert ("a step of adam" in method) == (settings.optimized_by == "adam")
    assert ("every site counts the same" in method) == (bool(trained) and settings.how.travels)

    if trained:
        assert trained == list(range(1, number(r"at most (\d+) rounds?,", at_most) + 1))
        assert number(r"each of (\d+) pass", at_most) == settings.local_epochs
        assert ("over 50 % of its training text, none twice" in at_most) == (settings.sample_share == 0.5)
    measured = [each["round"] for each in rounds(folder) if each["dev_loss"] is not None]
    measures = line(settings, "measures the loss on all of dev ")
    every = 1 if "every round" in measures else number(r"every (\d+) rounds and the last", measures) if trained else 1
    last = max(trained, default=0)
    assert measured == [n for n in range(last + 1) if n % every == 0 or n == last]
    assert ("before the first round" in measures) == bool(trained) != ("dev once" in measures)
    split, sites = folder.read("scores.json")["split"], folder.read("scores.json")["sites"]
    assert f"and on {split} at the end: BLEU, chrF (beam 1)" in measures
    assert all({"bleu", "chrf"} <= set(scores) for scores in sites.values())

    notes = [event["text"] for event in events(folder, "site") if event["site"] == "hospital"]
    passes = [re.fullmatch(r"trains (.+), at most (\d+) passes", text) for text in notes]
    by = {found[1]: int(found[2]) for found in passes if found}
    chooses = line(settings, "at the end the site chooses ")
    assert bool(chooses) == bool(by) == settings.chooses
    if chooses:
        assert ("two models" in chooses) == ("a second model alone" in by)
        assert by.pop("on from the federation") == number(r"federation's model, at most (\d+) pass", chooses)
        assert set(by.values()) == {number(r"alone, at most (\d+) passes", chooses)}

    # Every kind of message that went is listed, and no other.
    kinds = {kind for of in folder.read("traffic.json").values() for kind in of}
    listed = {kind.rpartition(".")[2] for kind in sends(settings, None)}
    assert kinds == listed
    assert ("losses" in server_sees(settings)[0]) == bool(measured)


@pytest.mark.parametrize("method", DEPLOYED)
def test_no_line_of_a_method_is_code_or_speaks_of_another(method: str) -> None:
    settings = settings_of(method=method)
    said = [*in_words(settings, RULES), *sends(settings, None).values(), *server_sees(settings)]
    for words in said:
        assert not re.search(
            r"\(s\)|[A-Z]\w+Rules\(|by (none|alone)\b|'\w+'|None|True|False| alone: |the same: |masked text", words
        ), words
    others = set(METHODS) - {method}
    assert not [words for words in said if others & set(re.findall(r"[a-z]+-[a-z-]+", words))]
    assert said[0].startswith(f"method {method}: ")
    how = settings.how.clustering
    told = {"random": "drawn at random", "gradients": "whose gradients are similar", "families": "of one group, such as Germanic"}
    assert [name for name, words in told.items() if words in said[0]] == [how] * (how in told)
    assert ("over all sites" in said[0]) == (how == "none" and method != "base")


def test_rules_of_the_text_are_told_as_a_federation_file_has_them(tmp_path) -> None:
    assert line(settings_of(), "splits ") == (
        'splits the text by a hash of each sentence on the side that the sites share, under the key "fedlingua": 60 % train, 20 % dev, '
        "20 % test"
    )
    assert line(settings_of(), "further rules") == ""
    rules = TextRules(SplitRules("paper"), Sizes(train=9), CleaningRules(min_words=3, strict=True), (), Sizes(dev=4))
    assert line(settings_of(), "shuffles ", rules).endswith('cuts it, with the key "fedlingua": 60 % train, 20 % dev, 20 % test')
    further = line(settings_of(), "further rules for the text: ", rules).partition(": ")[2]
    assert further == "split.max-train = 9, cleaning.min-words = 3, cleaning.strict = true, sizes.dev = 4"
    site = '[[site]]\nname = "a"\ndirection = "de-en"\n'
    (tmp_path / "f.toml").write_text("".join(f"{each}\n" for each in ['split.mode = "paper"', *further.split(", ")]) + site)
    read = read_federation(tmp_path / "f.toml", tmp_path).rules
    assert (read.limits, read.cleaning, read.sizes) == (rules.limits, rules.cleaning, rules.sizes)
    assert line(settings_of(), "the text comes", TextRules(SplitRules("given")))


def test_what_a_sites_file_bounds_is_told_as_it_is_bounded() -> None:
    settings = settings_of(**{"keep.passes": 50})
    here = SiteLimits(keep_passes=2, keep_minutes=7.0).bounded(settings)
    (chooses,) = (words for words in in_words(settings, RULES, here) if words.startswith("at the end the site"))
    assert "at most 18 passes each, and one on from the federation's model, at most 2 passes" in chooses
    assert "after 7 minutes it starts no further pass" in chooses
    refused = SiteLimits(keep_choose=False).bounded(settings)
    assert not [words for words in in_words(settings, RULES, refused) if words.startswith("at the end the site")]


def test_other_settings_are_told_as_an_experiment_file_has_them() -> None:
    words = line(settings_of(method="adapter-fed", **{"keep.choose": False, "send.code": "none"}), "settings other")
    assert words == 'settings other than the defaults: method = "adapter-fed", send.code = "none", keep.choose = false'
    masked = settings_of(task="masked-language", backbone="demo-encoder")
    assert "perplexity, masked pieces guessed right" in line(masked, "measures")
    assert "BLEU" not in "".join([*in_words(masked, RULES), *sends(masked, None).values()])
