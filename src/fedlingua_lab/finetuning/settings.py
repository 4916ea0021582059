"""How an encoder is fine-tuned; imported without torch, so that mistakes are told at once."""

from dataclasses import dataclass
from typing import Annotated, Literal

from typer import Option


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned, all of which trains: options of the command."""

    max_tokens: Annotated[
        int | None, Option(help="Longest sequence in subwords; default: the encoder's limit, up to 256.", show_default=False)
    ] = None
    threads: Annotated[int, Option(min=1, help="Torch threads; another number changes the last bits.")] = 1
    device: Annotated[Literal["cpu", "cuda"], Option(help="Device to train on.")] = "cpu"
    epochs: Annotated[int, Option(min=1, help="Passes over the training text; the best one on dev is kept.")] = 10
    learning_rate: Annotated[float, Option(help="Highest learning rate of AdamW.")] = 5e-5
    batch_size: Annotated[int, Option(min=1, help="Sequences in a step, on each GPU.")] = 16
    seed: Annotated[int, Option(min=0, help="Random seed.")] = 2022
    precision: Annotated[Literal["fp32", "bf16"], Option(help="Precision of the arithmetic; weights stay fp32.")] = "fp32"
