"""Pre-training a toy: the loss falls, equal seeds give equal bytes, and a training broken off leaves nothing."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedlingua.backbones.build import ModelSize
from fedlingua.backbones.load import load_backbone
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction
from fedlingua.pretraining.loop import Progress, pretrain
from fedlingua.pretraining.material import translation_material
from fedlingua.pretraining.settings import PretrainSettings
from fedlingua.training.batches import pad
from fedlingua.training.objective import corpus_nll
from fedlingua.training.translation import encode_pairs

SIZE = ModelSize(d_model=16, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=32, vocab_size=120, max_positions=64)
TRAINING = PretrainSettings(
    steps=30, tokens_per_batch=300, learning_rate=1e-2, warmup_steps=5, label_smoothing=0.0, max_tokens=48, threads=1, seed=1
)
Toy = tuple[dict[Direction, list[Pair]], dict[Direction, list[Pair]]]


def trained(toy: Toy, directory: Path, settings: PretrainSettings = TRAINING) -> list[Progress]:
    reports: list[Progress] = []
    pretrain(partial(translation_material, *toy, SIZE, settings), settings, directory, reports.append)
    return reports


def files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_the_loss_falls_and_progress_reaches_its_end(toy_corpora: Toy, tmp_path: Path) -> None:
    reports = trained(toy_corpora, tmp_path / "toy")
    assert [report.step for report in reports] == list(range(3, 31, 3))
    assert [report.done for report in reports] == [step / 30 for step in range(3, 31, 3)]
    losses = [report.dev_loss for report in reports]
    assert losses[-1] < losses[0] - 0.3
    assert reports[-1].train_loss < reports[0].train_loss - 0.3


def test_what_is_left_loads_as_a_backbone_of_its_languages(toy_corpora: Toy, tmp_path: Path) -> None:
    reports = trained(toy_corpora, tmp_path / "toy")
    backbone = load_backbone(tmp_path / "toy")
    assert backbone.model.config.d_model == 16
    backbone.codec.check(toy_corpora[0])
    assert reports[-1].step == 30
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_the_weights_kept_are_those_that_the_last_dev_loss_was_of(toy_corpora: Toy, tmp_path: Path) -> None:
    last = trained(toy_corpora, tmp_path / "toy")[-1]
    backbone = load_backbone(tmp_path / "toy")
    dev = [example for d, pairs in toy_corpora[1].items() for example in encode_pairs(pairs, d, backbone.codec, 48)]
    nll_sum, num_tokens = corpus_nll(backbone.model, [pad(dev, backbone.codec)])
    assert nll_sum / num_tokens == pytest.approx(last.dev_loss, rel=1e-5)


def test_the_seed_decides_the_bytes(toy_corpora: Toy, tmp_path: Path) -> None:
    for name, settings in (("a", TRAINING), ("b", TRAINING), ("c", replace(TRAINING, seed=2))):
        trained(toy_corpora, tmp_path / name, settings)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert load_backbone(tmp_path / "a").fingerprint == load_backbone(tmp_path / "b").fingerprint
    assert files(tmp_path / "a")["model.safetensors"] != files(tmp_path / "c")["model.safetensors"]


class Stop(Exception):  # noqa: N818 - what a user's Ctrl-C stands for, no error
    pass


def stopping_after(steps: int) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step >= steps:
            raise Stop

    return report


def test_a_training_broken_off_leaves_nothing(toy_corpora: Toy, tmp_path: Path) -> None:
    for steps in (3, 30):
        with pytest.raises(Stop):
            pretrain(
                partial(translation_material, *toy_corpora, SIZE, TRAINING), TRAINING, tmp_path / "toy", stopping_after(steps)
            )
        assert not list(tmp_path.iterdir())


def test_a_training_broken_off_leaves_an_older_backbone_as_it_was(toy_corpora: Toy, tmp_path: Path) -> None:
    trained(toy_corpora, tmp_path / "toy", replace(TRAINING, steps=1))
    before = files(tmp_path / "toy")
    with pytest.raises(Stop):
        pretrain(partial(translation_material, *toy_corpora, SIZE, TRAINING), TRAINING, tmp_path / "toy", stopping_after(3))
    assert files(tmp_path / "toy") == before
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_a_finished_training_takes_the_place_of_an_older_backbone(toy_corpora: Toy, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "stray.json").write_text("{}")
    trained(toy_corpora, tmp_path / "toy", replace(TRAINING, steps=1))
    assert "stray.json" not in files(tmp_path / "toy")
    assert "model.safetensors" in files(tmp_path / "toy")


def test_minutes_end_a_training_that_has_steps_left(toy_corpora: Toy, tmp_path: Path) -> None:
    (last,) = trained(toy_corpora, tmp_path / "toy", replace(TRAINING, steps=100_000, minutes=1e-9))
    assert last.step < 100
    assert last.done == 1.0
