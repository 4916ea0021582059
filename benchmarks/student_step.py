"""A training step of a student beside one of a Marian with attention in the decoder, and beside the same student with a loop over time.

    .venv/bin/python benchmarks/student_step.py [--dry] [--to results.json] [--repeats N]

All have the published shape and random weights: d 256, ffn 1,536, 8 heads, 6 + 2 layers, 32,000 pieces. A step is a site's: forward, loss,
backward and Adam on 16 pairs of about 12 or about 40 tokens a side, all numbers of the model, with dropout. Most of it is the output layer,
which all have; so the unit, in which alone they differ, is also timed by itself, forwards and backwards. Then the student and the Marian
translate the same sources greedily, as many tokens each. In fp32 on one core, turn about in one process, timed by the core's time. The
student and its loop have to have the same loss and gradients. Two minutes; `--dry` goes through it with a tiny shape.
"""

import random
from collections.abc import Callable
from math import comb
from time import process_time
from types import SimpleNamespace
from typing import Any

import torch
from kept import keep, parser_of
from paired import figures, ratio, turn_about
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from fedlingua.backbones.student import SSRU, StudentConfig, StudentModel
from fedlingua.settings.config import Settings
from fedlingua.training.accumulate import StepGradient
from fedlingua.training.batches import pad
from fedlingua.training.optimizers import OPTIMIZERS
from fedlingua.training.translation import PairExample

WANTED_RATIO, WANTED_DIFFERENCE = 1.0, 1e-5
"""Time of the student's step and unit over the Marian's, by the interval's lower end; loss and gradients beside the loop's, as a share
of the largest. More ends the benchmark with an error."""
SENTENCES, LENGTHS, SEED = 16, (12, 40), 1
PUBLISHED = {"vocab_size": 32001, "d_model": 256, "ffn": 1536, "heads": 8, "layers": (6, 2)}
TINY = {"vocab_size": 101, "d_model": 32, "ffn": 64, "heads": 2, "layers": (1, 1)}


class Looped(SSRU):
    """The unit as it is written down: a token after the other."""

    def forward(self, hidden_states: Tensor, past_key_values: Any = None, **_: Any) -> tuple[Tensor, None]:
        """Return the output, (batch, time, width), in training only."""
        forget = torch.sigmoid(self.forget(hidden_states))
        inputs = (1 - forget) * self.input(hidden_states)
        state, states = torch.zeros_like(inputs[:, 0]), []
        for kept, new in zip(forget.unbind(1), inputs.unbind(1), strict=True):
            state = torch.addcmul(new, kept, state)
            states.append(state)
        return torch.relu(torch.stack(states, 1)), None


def models(shape: dict[str, Any]) -> dict[str, PreTrainedModel]:
    """The student, the Marian and the student with the loop; what they have in common has the same weights."""
    sides = {
        f"{side}_{key}": value
        for side, layers in zip(("encoder", "decoder"), shape["layers"], strict=True)
        for key, value in (("layers", layers), ("ffn_dim", shape["ffn"]), ("attention_heads", shape["heads"]))
    }
    pad_id = shape["vocab_size"] - 1
    ids = {"pad_token_id": pad_id, "decoder_start_token_id": pad_id, "eos_token_id": 0, "forced_eos_token_id": None}
    how: Any = {**sides, **ids, "vocab_size": pad_id + 1, "d_model": shape["d_model"], "activation_function": "relu"}
    torch.manual_seed(SEED)
    student, looped = (StudentModel(StudentConfig(**how, scale_embedding=True)) for _ in range(2))
    for number, layer in enumerate(looped.model.decoder.layers):
        layer.self_attn = Looped(shape["d_model"], number)
    looped.load_state_dict(student.state_dict())
    attention = MarianMTModel(MarianConfig(**how, scale_embedding=True))
    attention.load_state_dict(student.state_dict(), strict=False)
    return {"student": student, "attention": attention, "looped": looped}


def pairs_of(length: int, vocabulary: int) -> list[PairExample]:
    """The pairs of a batch, the shortest first, whose lengths differ by a quarter."""
    drawn = random.Random(SEED)

    def side() -> list[int]:
        return [*(drawn.randrange(2, vocabulary) for _ in range(round(length * drawn.uniform(0.75, 1.25)) - 1)), 0]

    return sorted((PairExample(side(), side()) for _ in range(SENTENCES)), key=lambda pair: pair.length)


def training(model: PreTrainedModel, pairs: list[PairExample], codec: Any) -> Callable[[], None]:
    """A step of a site that trains the whole model."""
    optimizer = OPTIMIZERS["adam"]([*model.parameters()], 3e-5, 0.0, 1e-8)
    add_gradient = StepGradient(model.train(), codec, Settings())

    def step() -> None:
        add_gradient([pairs])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def unit(model: Any, length: int) -> Callable[[], None]:
    """What stands in the decoder's first layer for self-attention, ten times forwards and backwards."""
    inner = model.train().model.decoder.layers[0].self_attn
    given = torch.randn(SENTENCES, length, model.config.d_model, requires_grad=True)

    def passes() -> None:
        for _ in range(10):
            output, _ = inner(given)
            output.backward(torch.ones_like(output))

    return passes


def decoding(model: PreTrainedModel, pairs: list[PairExample], codec: Any, length: int) -> Callable[[], object]:
    """Greedy translation, `length` tokens of every sentence."""
    batch, how = pad(pairs, codec), {"num_beams": 1, "do_sample": False, "max_new_tokens": length}
    model.eval().generation_config.eos_token_id = None
    return lambda: model.generate(input_ids=batch.input_ids, attention_mask=batch.attention_mask, **how)  # type: ignore[operator]


def difference(model: PreTrainedModel, other: PreTrainedModel, pairs: list[PairExample], codec: Any) -> float:
    """The largest difference of loss and gradients without dropout, each as a share of the largest: a key's bias has rounding alone."""
    found: list[tuple[Tensor, Tensor]] = []
    for each in (model, other):
        nll, _ = pad(pairs, codec).nll(each.eval())
        gradients = torch.autograd.grad(nll, [one for one in each.parameters() if one.requires_grad])
        found.append((nll.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
    return max(float((one - two).abs().max() / two.abs().max()) for one, two in zip(*found, strict=True))


def interval(times: list[float], others: list[float]) -> list[float]:
    """At least 95 % of the median of the pairs' ratios, by their order; of fewer than six pairs, all of them."""
    ratios, beyond = sorted(one / other for one, other in zip(times, others, strict=True)), 0
    while sum(comb(len(ratios), few) for few in range(beyond + 1)) <= 0.025 * 2 ** len(ratios):
        beyond += 1
    first = max(0, beyond - 1)
    return [round(ratios[first], 3), round(ratios[-1 - first], 3)]


def compared(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, Any]:
    times = turn_about(ways, repeats, process_time)
    return {
        **figures(times),
        **{
            f"student_over_{other}": ratio(times["student"], times[other])
            | {"interval": interval(times["student"], times[other])}
            for other in ways
            if other != "student"
        },
    }


def measured(shape: dict[str, Any], repeats: int) -> dict[str, Any]:
    made, vocabulary = models(shape), shape["vocab_size"] - 1
    codec = SimpleNamespace(pad_id=vocabulary, start_id=vocabulary)
    found: dict[str, Any] = {
        "sentences": SENTENCES,
        "parameters": {way: model.num_parameters() for way, model in made.items()},
        "difference_from_loop": difference(made["student"], made["looped"], pairs_of(LENGTHS[-1], vocabulary), codec),
    }
    for length in LENGTHS:
        pairs = pairs_of(length, vocabulary)
        found[f"unit_{length}"] = compared({way: unit(model, length) for way, model in made.items()}, repeats)
        found[f"training_{length}"] = compared({way: training(model, pairs, codec) for way, model in made.items()}, repeats)
    del made["looped"]
    for length in LENGTHS:
        pairs = pairs_of(length, vocabulary)
        ways = {way: decoding(model, pairs, codec, length) for way, model in made.items()}
        found[f"decoding_{length}"] = compared(ways, repeats)
    return found


def short_of(result: dict[str, Any]) -> list[str]:
    """What does not come up to what is wanted, in words."""
    ratios = {
        f"{what}_{length}": result[f"{what}_{length}"]["student_over_attention"]["interval"][0]
        for what in ("unit", "training")
        for length in LENGTHS
    }
    slow = [f"{what} takes {taken} times as long as with attention" for what, taken in ratios.items() if taken > WANTED_RATIO]
    apart = result["difference_from_loop"]
    return [*slow, *([f"loss and gradients differ from the loop's by {apart}"] if apart > WANTED_DIFFERENCE else [])]


def main() -> None:
    parser = parser_of(__doc__, 15)
    parser.add_argument("--dry", action="store_true", help="a tiny shape")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    result = measured(TINY, 2) if chosen.dry else measured(PUBLISHED, chosen.repeats)
    keep({**result, "wanted_ratio": WANTED_RATIO, "dry": chosen.dry}, chosen.to, "torch", "transformers")
    if not chosen.dry and (short := short_of(result)):
        raise SystemExit("\n".join(short))


if __name__ == "__main__":
    main()
