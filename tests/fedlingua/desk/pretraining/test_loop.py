"""Pre-training a toy: the loss falls, equal seeds give equal bytes, gone on with or not, and a training broken off leaves nothing."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.checkpoints import Progress
from fedlingua.desk.pretraining.loop import Outcome, pretrain
from fedlingua.desk.pretraining.material import translation_material
from fedlingua.desk.pretraining.settings import ModelSize, PretrainSettings, Watching
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


@pytest.fixture(scope="module")
def whole(toy_corpora: Toy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Progress]]:
    """A toy that is trained once, in a folder of its own, with its looks at the dev text."""
    directory = tmp_path_factory.mktemp("whole") / "toy"
    return directory, trained(toy_corpora, directory)


def test_the_loss_falls_and_progress_reaches_its_end(whole: tuple[Path, list[Progress]]) -> None:
    _, reports = whole
    assert [report.step for report in reports] == list(range(3, 31, 3))
    assert [report.done for report in reports] == [step / 30 for step in range(3, 31, 3)]
    losses = [report.dev_loss for report in reports]
    assert losses[-1] < losses[0] - 0.3
    assert reports[-1].train_loss < reports[0].train_loss - 0.3


def test_what_is_left_loads_as_a_backbone_of_its_languages(toy_corpora: Toy, whole: tuple[Path, list[Progress]]) -> None:
    directory, reports = whole
    backbone = load_backbone(directory)
    assert backbone.model.config.d_model == 16
    backbone.codec.check(toy_corpora[0])
    assert reports[-1].step == 30
    assert [path.name for path in directory.parent.iterdir()] == ["toy"]


def test_the_weights_kept_are_those_that_the_last_dev_loss_was_of(toy_corpora: Toy, whole: tuple[Path, list[Progress]]) -> None:
    directory, (*_, last) = whole
    backbone = load_backbone(directory)
    dev = [example for d, pairs in toy_corpora[1].items() for example in encode_pairs(pairs, d, backbone.codec, 48)]
    nll_sum, num_tokens = corpus_nll(backbone.model, [pad(dev, backbone.codec)])
    assert nll_sum / num_tokens == pytest.approx(last.dev_loss, rel=1e-5)


def test_the_seed_decides_the_bytes(toy_corpora: Toy, tmp_path: Path) -> None:
    short = replace(TRAINING, steps=5)
    for name, settings in (("a", short), ("b", short), ("c", replace(short, seed=2))):
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
    short = replace(TRAINING, steps=4)
    for steps in (1, 4):
        with pytest.raises(Stop):
            pretrain(partial(translation_material, *toy_corpora, SIZE, short), short, tmp_path / "toy", stopping_after(steps))
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


# --- Gone on with ----------------------------------------------------------------------------------------------------------------

EVERY_STEP = 1e-9
"""Minutes between checkpoints that have passed after every step."""
SHORT = replace(TRAINING, steps=10)
KEPT, ALONE = Watching(dev_sentences=0, checkpoint_minutes=EVERY_STEP), Watching(dev_sentences=0, checkpoint_minutes=0.0)


def run(
    toy: Toy,
    directory: Path,
    settings: PretrainSettings = SHORT,
    watching: Watching = KEPT,
    stop: int = 10**9,
    **around: Any,
) -> Outcome:
    return pretrain(
        partial(translation_material, *toy, SIZE, settings),
        settings,
        directory,
        stopping_after(stop),
        watching,
        **{"made_of": {"training.seed": settings.seed}, **around},
    )


def in_two_goes(toy: Toy, directory: Path, stop: int, **how: Any) -> tuple[Outcome, list[str]]:
    """Broken off in the look after step `stop`, and gone on with; (outcome, what was told)."""
    with pytest.raises(Stop):
        run(toy, directory, stop=stop, **how)
    assert not directory.exists()
    told: list[str] = []
    return run(toy, directory, note=told.append, **how), told


@pytest.mark.parametrize(
    "change",
    [{}, {"precision": "bf16"}, {"sampling_temperature": 2.0}, {"tokens_per_batch": 10_000}, {"tokens_per_batch": 60}],
    ids=["fp32", "bf16", "tempered", "epochs-of-few-steps", "one-long-epoch"],
)
@pytest.mark.usefixtures("native_bf16")
def test_a_training_gone_on_with_ends_in_the_same_bytes_and_looks(
    toy_corpora: Toy, tmp_path: Path, change: dict[str, Any]
) -> None:
    settings = replace(SHORT, **change)
    whole = run(toy_corpora, tmp_path / "whole", settings, ALONE)
    resumed, told = in_two_goes(toy_corpora, tmp_path / "resumed", 6, settings=settings)
    assert [line for line in told if not line.startswith(("step", "preparing"))] == [
        f"resumes after step 5, from {tmp_path / '.resumed.training'}"
    ]
    assert files(tmp_path / "resumed") == files(tmp_path / "whole")
    assert [(look.step, look.train_loss, look.dev_loss) for look in resumed.looks] == [
        (look.step, look.train_loss, look.dev_loss) for look in whole.looks
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "resumed"}


def test_minutes_count_what_was_spent_before(toy_corpora: Toy, tmp_path: Path) -> None:
    outcome, _ = in_two_goes(toy_corpora, tmp_path / "toy", 6)
    seconds = [look.seconds for look in outcome.looks]
    assert seconds == sorted(seconds)


def test_what_is_made_of_something_else_is_not_gone_on_with(toy_corpora: Toy, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(toy_corpora, tmp_path / "toy", stop=3)
    with pytest.raises(ConfigError, match=r"training\.seed was 1 and is 2"):
        run(toy_corpora, tmp_path / "toy", replace(SHORT, seed=2))
    assert (tmp_path / ".toy.training" / "00000002").is_dir()


# --- Watched ---------------------------------------------------------------------------------------------------------------------


def test_looks_come_as_often_as_they_are_asked_for_and_change_no_byte(toy_corpora: Toy, tmp_path: Path) -> None:
    trained(toy_corpora, tmp_path / "plain", SHORT)
    watching = Watching(evaluate_every=3, checkpoint_minutes=0.0)
    outcome = run(toy_corpora, tmp_path / "watched", watching=watching, score=lambda model, codec: {"de-fr": 4.5})
    assert [look.step for look in outcome.looks] == [3, 6, 9, 10]
    assert [look.bleu for look in outcome.looks] == [{"de-fr": 4.5}] * 4
    assert files(tmp_path / "plain") == files(tmp_path / "watched")


def test_without_being_asked_for_bleu_is_only_of_the_last_step(toy_corpora: Toy, tmp_path: Path) -> None:
    watching = Watching(checkpoint_minutes=0.0)
    outcome = run(toy_corpora, tmp_path / "toy", watching=watching, score=lambda model, codec: {"de-fr": 4.5})
    assert [bool(look.bleu) for look in outcome.looks] == [False] * 9 + [True]


@pytest.mark.parametrize("stop", [None, 56])
def test_the_best_weights_are_kept_where_asked_for(toy_corpora: Toy, tmp_path: Path, stop: int | None) -> None:
    """Of six pairs alone, which are soon known by heart: dev gets worse then."""
    few = ({direction: pairs[:1] for direction, pairs in toy_corpora[0].items()}, toy_corpora[1])
    settings = replace(TRAINING, steps=70, learning_rate=5e-2, weight_average=0.0)
    watching = Watching(evaluate_every=7, dev_sentences=0, keep="best", checkpoint_minutes=0.5 / 60)
    how: dict[str, Any] = {"settings": settings, "watching": watching}
    outcome = in_two_goes(few, tmp_path / "toy", stop, **how)[0] if stop else run(few, tmp_path / "toy", **how)
    assert outcome.chosen.dev_loss == min(look.dev_loss for look in outcome.looks)
    assert outcome.chosen.step < 56
    backbone = load_backbone(tmp_path / "toy")
    dev = [example for d, pairs in toy_corpora[1].items() for example in encode_pairs(pairs, d, backbone.codec, 48)]
    nll_sum, num_tokens = corpus_nll(backbone.model, [pad(dev, backbone.codec)])
    assert nll_sum / num_tokens == pytest.approx(outcome.chosen.dev_loss, rel=1e-5)
    assert outcome.num_parameters == backbone.num_parameters


def test_weights_whose_card_cannot_be_written_are_kept_all_the_same(toy_corpora: Toy, tmp_path: Path) -> None:
    def describe(folder: Path, outcome: Outcome) -> None:
        raise ModuleNotFoundError("No module named 'language_data'")

    with pytest.raises(ModuleNotFoundError):
        run(toy_corpora, tmp_path / "toy", watching=ALONE, describe=describe)
    assert load_backbone(tmp_path / "toy").model.config.d_model == 16


def test_what_describes_it_is_there_when_the_weights_are(toy_corpora: Toy, tmp_path: Path) -> None:
    def describe(folder: Path, outcome: Outcome) -> None:
        assert (folder / "model.safetensors").is_file()
        assert not (tmp_path / "toy").exists()
        (folder / "README.md").write_text(f"{outcome.chosen.step}")

    run(toy_corpora, tmp_path / "toy", watching=ALONE, describe=describe)
    assert files(tmp_path / "toy")["README.md"] == b"10"


def test_text_that_all_watches_is_refused(toy_corpora: Toy, tmp_path: Path) -> None:
    train, dev = toy_corpora
    settings = TRAINING

    def nothing_left(directory: Path) -> Any:
        return replace(translation_material(train, dev, SIZE, settings, directory), train=[[], []])

    with pytest.raises(BackboneError, match="nothing to train on"):
        pretrain(nothing_left, settings, tmp_path / "toy", stopping_after(10**9))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_trains(toy_corpora: Toy, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="torch sees no GPU here; give device = 'cpu'"):
        trained(toy_corpora, tmp_path / "toy", replace(TRAINING, device="cuda"))
    assert not list(tmp_path.iterdir())


def test_the_best_weights_need_a_dev_text(toy_corpora: Toy, tmp_path: Path) -> None:
    make = partial(translation_material, toy_corpora[0], {}, SIZE, TRAINING)
    with pytest.raises(BackboneError, match=r"keep = 'best' chooses by the dev loss, .*; give \[base\] a larger dev"):
        pretrain(make, TRAINING, tmp_path / "toy", watching=Watching(keep="best", checkpoint_minutes=0.0))
