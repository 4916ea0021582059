"""When a setting is the paper's, key by key."""

from dataclasses import replace

import pytest

from fedlingua.backbones.published import PINNED_REVISIONS
from fedlingua.common.files import APP_DIR
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import KEYS
from fedlingua_lab.suites.paper import FED_MNMT, METASEND, unlike_the_paper

PAPERS = {
    "backbone": "facebook/mbart-large-50-many-to-many-mmt",
    "federation": "experiments/federations/ted2020_m2en.toml",
    "rounds": 5,
    "batch-size": 8,
    "accumulation": 16,
    "group-by-length": False,
    "learning-rate": 0.0,
    "adapter.dim": 64,
    "max-tokens": 256,
    "max-decode-tokens": 256,
    "keep.choose": False,
    "send.code": "none",
    "robust.max-share": 1.0,
    "robust.max-ratio": 0.0,
}


@pytest.fixture
def settings() -> Settings:
    return settings_from({**default_run_config(), **PAPERS})


def test_the_papers_setting_is_its_own_for_every_method_and_ablation(settings: Settings) -> None:
    assert not unlike_the_paper(settings)
    for method in ("base", "centralized-model", "model-fed", "adapter-random"):
        assert not unlike_the_paper(replace(settings, method=method))
    assert not unlike_the_paper(
        replace(settings, aggregation="fed-avg", adapter_layers="middle", cluster_parts="encoder", seed=7)
    )
    assert not unlike_the_paper(replace(settings, backbone_revision=PINNED_REVISIONS[FED_MNMT.backbone]))
    assert not unlike_the_paper(replace(settings, federation=str(APP_DIR / "experiments/federations/europarl_m2m.toml")))


def test_the_papers_learning_rate_may_be_written_out(settings: Settings) -> None:
    assert not unlike_the_paper(replace(settings, learning_rate=1e-3))
    assert not unlike_the_paper(replace(settings, method="model-fed", learning_rate=5e-5))
    assert unlike_the_paper(replace(settings, method="model-fed", learning_rate=1e-3))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backbone", "demo"),
        ("backbone_revision", "abc"),
        ("federation", "experiments/federations/phrasebook.toml"),
        ("rounds", 6),
        ("patience", 1),
        ("batch_size", 16),
        ("accumulation", 1),
        ("local_epochs", 2),
        ("learning_rate", 0.01),
        ("adapter_dim", 32),
        ("max_tokens", 128),
        ("max_decode_tokens", 128),
        ("beam", 1),
        ("whole_steps", False),
        ("best_by", "tokens"),
        ("score_split", "dev"),
        ("tensor_set", "lora"),
        ("num_clusters", 2),
        ("strategy", "mine:Mine"),
        ("max_site_share", 0.5),
        ("max_update_ratio", 1.9),
    ],
)
def test_one_key_that_differs_is_another_setting_and_is_named(settings: Settings, field: str, value: object) -> None:
    other = replace(settings, **{field: value})  # type: ignore[arg-type]
    assert set(unlike_the_paper(other)) == {KEYS[field]}


def test_metasend_has_a_setting_of_its_own() -> None:
    keys = {
        "backbone": "facebook/m2m100_418M",
        "federation": "experiments/federations/mtnt_noniid.toml",
        "rounds": 25,
        "keep.choose": False,
        "send.code": "none",
        "robust.max-share": 1.0,
        "robust.max-ratio": 0.0,
    }
    keys |= {
        "group-by-length": False,
        "batch-size": 2,
        "accumulation": 1,
        "learning-rate": 0.005,
        "aggregation": "fed-avg",
        "method": "metasend-g",
    }
    settings = settings_from({**default_run_config(), **keys})
    assert not unlike_the_paper(settings, METASEND)
    assert not unlike_the_paper(replace(settings, method="centralized-model", rounds=50), METASEND)
    assert not unlike_the_paper(replace(settings, backbone_weights="random", meta_neurons=500), METASEND)
    assert set(unlike_the_paper(replace(settings, method="pmfl", rounds=50), METASEND)) == {"rounds"}
    assert set(unlike_the_paper(replace(settings, learning_rate=5e-5), METASEND)) == {"learning-rate"}
    assert {"backbone", "federation"} <= set(unlike_the_paper(settings))
