"""What a site approves: alike on both sides, bound to all that reaches what runs there, and told in words."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord

from fedlingua.consent.approval import approval_hash, rules_hash, sends
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SplitRules
from fedlingua.desk.cli.site import server_sees
from fedlingua.desk.deployment.run_words import in_words
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.outline_of_run import outline_of
from fedlingua.exchange.protocol import FINISH, TRAIN
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING, OPTIONS
from tests.federations import FOUR_SITES

SETTINGS = settings_from(default_run_config())
RULES = TextRules(SplitRules("shared-side", "k", 0.8, 0.1, 0.1))


def test_server_and_site_make_the_same_hash_though_paths_differ_and_rules_travel(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(FOUR_SITES)
    (tmp_path / "x.toml").write_text("rounds = 3\nlearning-rate = 1\n")
    rules = read_federation(tmp_path / "server.toml", tmp_path).rules
    at_server = read_experiment(tmp_path / "x.toml", {"federation": "/server/f.toml", "run-dir": "/r", "data-dir": "/d"})
    arrived = settings_from(at_server.flat())
    travelled = TextRules.from_flat(ConfigRecord(rules.flat()))
    at_site = read_experiment(tmp_path / "x.toml", {})
    assert approval_hash("b", arrived, travelled) == approval_hash("b", at_site, rules)


@pytest.mark.parametrize("key", sorted(SETTINGS.flat()))
def test_a_key_is_bound_unless_the_list_says_otherwise(key: str) -> None:
    value = SETTINGS.flat()[key]
    other: Any = (not value) if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else value + 1
    changed = Settings(**{**dataclasses.asdict(SETTINGS), OPTIONS[key].attribute: other})
    same = approval_hash("b", SETTINGS, RULES) == approval_hash("b", changed, RULES)
    assert same == (key in CHANGES_WITHOUT_ASKING)


def test_bundle_and_rules_are_bound() -> None:
    plain = approval_hash("b", SETTINGS, RULES)
    assert plain != approval_hash("c", SETTINGS, RULES)
    for key, value in RULES.flat().items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            table, _, name = key.partition(".")
            other = dataclasses.replace(getattr(RULES, table), **{name: value + 1})
            changed = dataclasses.replace(RULES, **{table: other})
            assert plain != approval_hash("b", SETTINGS, changed), key
            assert rules_hash(changed) != rules_hash(RULES), key


def test_the_words_tell_what_is_trained_measured_and_how_text_is_split() -> None:
    changed = dataclasses.replace(SETTINGS, rounds=7, sample_least=9)
    told = "\n".join(in_words(changed, dataclasses.replace(RULES, sizes=dataclasses.replace(RULES.sizes, train=500))))
    for words in (
        "method adapter-families: trains adapters of demo",
        "at most 7 rounds, each of 1 pass over 9 examples",
        'the key "k"',
    ):
        assert words in told
    assert "sizes.train = 500" in told
    assert "sample.least = 9" in told
    assert "on test at the end: BLEU, chrF (beam 5)" in told


def test_the_server_sees_an_update_or_a_sum_or_scores_alone() -> None:
    seen, hidden = server_sees(SETTINGS)
    assert "its update of every round" in seen
    assert "update" not in hidden
    seen, hidden = server_sees(dataclasses.replace(SETTINGS, privacy_sum="secure", privacy_min_cluster=4))
    assert "only the sum with those of 3 or more other sites" in seen
    assert "this site's own update" in hidden
    seen, hidden = server_sees(dataclasses.replace(SETTINGS, method="base"))
    assert "update" not in seen
    assert hidden.endswith("any tensor")


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, "86592 numbers as 4bit, about 43.30 kB at most"),
        ({"send_code": "none"}, "86592 numbers of 4 bytes, 346.37 kB"),
        ({"selection": "fixed-g"}, "86592 numbers of 4 bytes, 346.37 kB"),
        ({"send_code": "sign top 0.03"}, "86592 numbers as sign top 0.03, about 2.43 kB at most"),
        ({"privacy_sum": "secure"}, "86592 numbers of 2 bytes at most, 173.18 kB"),
        ({"privacy_sum": "secure", "dp_epsilon": 8.0, "dp_noise": "shares"}, "86592 numbers of 3 bytes at most, 259.78 kB"),
    ],
)
def test_an_updates_size_is_told_as_it_travels(changes: dict[str, Any], size: str) -> None:
    settings = dataclasses.replace(SETTINGS, **changes)
    assert f"(64 tensors, {size})" in sends(settings, outline_of(settings).tensor_set)[TRAIN]


def test_private_training_is_told_with_its_guarantee_and_its_steps() -> None:
    private = dataclasses.replace(SETTINGS, dp_epsilon=8.0, rounds=5, local_epochs=4, sample_share=0.25)
    told = "\n".join(in_words(private, RULES))
    assert "at most epsilon = 8 at delta = 1e-05: 20 noised steps, a sentence in each with probability 0.25" in told
    assert "tell of a single sentence pair of train" in told
    documents = "\n".join(in_words(dataclasses.replace(private, dp_unit="document"), RULES))
    assert "tell of a single document of train at most epsilon = 8" in documents
    assert "20 noised steps, a document in each with probability 0.25" in documents
    assert "share of the noise" not in told
    shared = "\n".join(in_words(dataclasses.replace(private, dp_noise="shares", privacy_min_cluster=4), RULES))
    assert "this site adds a share of the noise, which is whole if 4 sites of a sum, it among them, are honest" in shared
    assert "at most epsilon = 8" in server_sees(private)[0]
    assert "parts of the training text" not in server_sees(private)[0]
    agreed = sends(dataclasses.replace(SETTINGS, selection="fixed-g", privacy_sum="secure"), None)[TRAIN]
    assert "those that the server names, the same for all sites of a cluster" in agreed
    assert "relative change" not in agreed
    sent = sends(private, None)
    assert "sums of steps, seconds" in sent[TRAIN]
    assert "loss, tokens" not in sent[TRAIN]
    assert "trained alone" in sends(SETTINGS, None)[FINISH]
    assert "trained alone" not in sent[FINISH]  # where sites choose, a private run says nothing of it


def test_a_site_reads_which_layers_change_what_it_sends() -> None:
    own = dataclasses.replace(SETTINGS, layers="my_file:Mine")
    assert "once the bundle's layers = 'my_file:Mine' have changed them, and what else these add" in sends(own, None)[TRAIN]
    assert "layers" not in sends(SETTINGS, None)[TRAIN]
