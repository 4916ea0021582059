"""How a small backbone is trained from nothing."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class PretrainSettings:
    """Ends at `steps`, or at `minutes` when that is above 0 and comes first; only a training that ends at `steps` repeats exactly.

    `tokens_per_batch` counts the padded longer side; the learning rate warms up and then falls with the inverse square root;
    `weight_average` is the decay of the exponential average over the steps that is kept as the result. `sampling_temperature`: 1 takes
    every pair once an epoch; above 1 each direction (of an encoder, language) counts by its size to the power of 1 / temperature.
    """

    steps: int = 3000
    minutes: float = 0.0
    tokens_per_batch: int = 1500
    learning_rate: float = 2e-3
    warmup_steps: int = 300
    label_smoothing: float = 0.1
    weight_average: float = 0.998
    max_tokens: int = 128
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: int = 2
    seed: int = 2022
    sampling_temperature: float = 1.0
    device: Literal["cpu", "cuda"] = "cpu"


@dataclass(frozen=True)
class EncoderSettings(PretrainSettings):
    """The same of an encoder. mask_share: of a sequence's pieces, which are to be predicted; shown anew each time."""

    label_smoothing: float = 0.0
    mask_share: float = 0.15


@dataclass(frozen=True)
class Watching:
    """What is looked at and kept while a backbone trains; nothing of it changes a step.

    evaluate_every: steps between two looks at the dev text, each with dev loss and, of a model that translates, BLEU; 0: ten looks in all,
    or one in 500 steps where that is more, at the loss alone until the last. dev_sentences: of each direction, how many are translated,
    greedily; 0: none. keep: the weights of the last step, or of the look with the least dev loss. checkpoint_minutes: between two
    checkpoints; 0: none, and nothing to go on from.
    """

    evaluate_every: int = 0
    dev_sentences: int = 60
    keep: Literal["last", "best"] = "last"
    checkpoint_minutes: float = 10.0


_LATER = {"sampling_temperature", "device"}
"""Settings that came after backbones had been named by the hash of theirs."""


def decisive(settings: PretrainSettings) -> dict[str, Any]:
    """What the hash of a built-in backbone is of: a setting that came later counts only where it is not at its default, so that no backbone
    has to be trained again for it.
    """
    defaults = asdict(type(settings)())
    return {key: value for key, value in asdict(settings).items() if key not in _LATER or value != defaults[key]}
