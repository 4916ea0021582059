"""How sentences are translated, as `translate` and `serve` are told it. Loads no numpy, which --help and completion do without."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fedlingua.common.errors import ConfigError

MOST_BEAMS = 64


@dataclass(frozen=True)
class Decoding:
    """Options of the search; None takes the run's. most: sentences of one batch."""

    beam: Annotated[int | None, typer.Option(help="Beams of the search; default: the run's.")] = None
    most: Annotated[
        int,
        typer.Option(
            "--batch", help="Most sentences translated at once; 1: each by itself; 0: as many of a length as fit 4,000 tokens."
        ),
    ] = 0
    max_tokens: Annotated[
        int | None, typer.Option(help="A longer sentence is cut there, and refused by serve; default: the run's.")
    ] = None
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-decode-tokens", help="Most tokens of a translation; default: the run's.")
    ] = None

    def check(self) -> None:
        """Refuse a number out of range by a ConfigError."""
        for option, value, least, highest in (
            ("beam", self.beam, 1, MOST_BEAMS),
            ("max-tokens", self.max_tokens, 3, None),
            ("max-decode-tokens", self.max_new_tokens, 1, None),
            ("batch", self.most, 0, None),
        ):
            if value is not None and (value < least or (highest is not None and value > highest)):
                wanted = f"{least} to {highest}" if highest is not None else f"{least} or more"
                raise ConfigError(f"--{option} {value}; wanted {wanted}")
