"""Whole runs that find the base's translations and scores where another run made them: nothing of a result changes by it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from clients import masked_language, translation
from fedlingua.settings.config import Scalar
from tests.clients.test_deployed import config as config
from tests.clients.test_deployed import deploy
from tests.clients.test_deployed import sites as sites
from tests.federations import SITES
from tests.in_process import run


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("fedlingua.common.cache.base_results_dir", lambda: tmp_path / "base-results")
    return tmp_path / "base-results"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a model was asked to translate or score, a direction or a text's language each time."""
    calls: list[str] = []
    translate, score = translation.translations, masked_language.masked_scores

    def translations(model: Any, codec: Any, pairs: Any, direction: Any, settings: Any, guides: Any = ()) -> Any:
        calls.append(str(direction))
        return translate(model, codec, pairs, direction, settings, guides)

    def sums(model: Any, codec: Any, text: Any, split: Any, settings: Any) -> Any:
        calls.append(str(text.direction))
        return score(model, codec, text, split, settings)

    monkeypatch.setattr(translation, "translations", translations)
    monkeypatch.setattr(masked_language, "masked_scores", sums)
    return calls


def results(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in (*folder.glob("sites/*/*.tsv"), folder / "scores.json")}


def test_a_second_method_and_seed_find_the_bases_translations_and_end_in_the_same_bytes(
    four_sites: dict[str, Scalar], tmp_path: Path, cached: Path, asked: list[str]
) -> None:
    other = {**four_sites, "method": "model-fed", "seed": 7, "rounds": 1}
    run({**four_sites, "method": "adapter-families", "rounds": 1}, tmp_path / "first")
    assert len(asked) == 2 * len(SITES)
    found, _ = run(other, tmp_path / "found")
    assert len(asked) == 3 * len(SITES)
    run({**four_sites, "method": "base"}, tmp_path / "base")
    assert len(asked) == 3 * len(SITES)
    run({**four_sites, "method": "base", "beam": 2}, tmp_path / "beam")
    assert len(asked) == 4 * len(SITES)
    shutil.rmtree(cached)
    made, _ = run(other, tmp_path / "made")
    assert len(asked) == 6 * len(SITES)
    assert results(found.directory) == results(made.directory)


def test_metrics_of_the_base_are_of_what_was_found(four_sites: dict[str, Scalar], tmp_path: Path, cached: Path) -> None:
    more = {**four_sites, "method": "adapter-fed", "rounds": 1, "metrics": "bleu,chrf,ter,length-ratio"}
    made, found = (run(more, tmp_path / name)[0] for name in ("made", "found"))
    assert results(made.directory) == results(found.directory)
    assert "base_ter" in made.read("scores.json")["sites"]["court"]


def test_a_second_pre_training_finds_the_bases_perplexity(
    four_texts: dict[str, Scalar], tmp_path: Path, cached: Path, asked: list[str]
) -> None:
    config = {**four_texts, "method": "adapter-fed", "rounds": 1}
    made, found = (run(config, tmp_path / name)[0] for name in ("made", "found"))
    assert len(asked) == 3 * len(SITES)
    assert results(made.directory) == results(found.directory)
    run({**config, "mask-share": 0.3}, tmp_path / "more")
    assert len(asked) == 5 * len(SITES)


def test_a_deployed_site_keeps_them_in_its_own_state(
    sites: list[Path], config: dict[str, Scalar], tmp_path: Path, cached: Path, asked: list[str]
) -> None:
    for seed in (1, 2):
        deploy({**config, "method": "adapter-fed", "rounds": 1, "seed": seed}, sites, tmp_path, f"deployed-{seed}")
    assert len(asked) == 3 * len(sites)
    assert not cached.exists()
    assert [len(list((folder / "state" / "base-results").iterdir())) for folder in sites] == [3, 3, 3]
