"""A setting that comes later does not give the built-in backbones another name."""

from dataclasses import asdict, replace

from fedlingua.desk.pretraining import demo
from fedlingua.desk.pretraining.settings import PretrainSettings, decisive

FIRST = {
    "steps", "minutes", "tokens_per_batch", "learning_rate", "warmup_steps", "label_smoothing", "weight_average", "max_tokens",
    "precision", "threads", "seed",
}  # fmt: skip
"""What the names of the built-in backbones have always been hashed from: caches would be lost with another."""


def test_the_built_in_backbones_are_named_by_what_they_have_always_been_named_by() -> None:
    assert set(decisive(demo.TRAINING)) == FIRST
    assert set(decisive(demo.ENCODER_TRAINING)) == FIRST | {"mask_share"}
    assert decisive(demo.TRAINING).items() <= asdict(demo.TRAINING).items()


def test_a_later_setting_that_is_used_counts() -> None:
    assert decisive(replace(PretrainSettings(), sampling_temperature=2.0))["sampling_temperature"] == 2.0
    assert decisive(replace(PretrainSettings(), device="cuda"))["device"] == "cuda"
