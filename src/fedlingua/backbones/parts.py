"""The parts of a translation model, of which encoder and decoder are averaged apart."""

from typing import Literal

Part = Literal["encoder", "decoder", "shared"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "shared")
