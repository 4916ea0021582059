"""Options of `translate` and `serve`. Loads no numpy: --help and completion need none."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from fedlingua.common.errors import ConfigError

MOST_BEAMS = 64


@dataclass(frozen=True)
class Decoding:
    """Options of translating with a model and a glossary; None takes the run's value. most: sentences in a batch."""

    beam: Annotated[int | None, Option(help="Number of beams; default: the run's.")] = None
    most: Annotated[int, Option("--batch", help="Sentences in a batch; 0: as many of similar length as fit in 2,000 tokens.")] = 0
    max_tokens: Annotated[
        int | None, Option(help="Longest sentence in tokens; longer ones are cut, or refused by serve; default: the run's.")
    ] = None
    max_new_tokens: Annotated[
        int | None, Option("--max-decode-tokens", help="Longest translation in tokens; default: the run's.")
    ] = None
    threads: Annotated[int, Option(min=0, help="Torch threads; 0: one per core. Small models are faster with 1.")] = 0
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        Option(help="Device to translate on; default: the run's, or cpu on a machine without a GPU."),
    ] = None
    terms: Annotated[
        Path | None,
        Option(
            help="Glossary of terms: .tbx, or .tsv with a term, TAB and its translation on each line. A direction in the name, as in "
            "medical.de-en.tsv, says which column is which; serve needs one."
        ),
    ] = None

    def check(self) -> None:
        """Raise ConfigError for a number out of range, or a glossary that does not exist."""
        for option, value, least, highest in (
            ("beam", self.beam, 1, MOST_BEAMS),
            ("max-tokens", self.max_tokens, 3, None),
            ("max-decode-tokens", self.max_new_tokens, 1, None),
            ("batch", self.most, 0, None),
        ):
            if value is not None and (value < least or (highest is not None and value > highest)):
                wanted = f"{least} to {highest}" if highest is not None else f"{least} or more"
                raise ConfigError(f"--{option} {value}; wanted {wanted}")
        if self.terms is not None and not self.terms.is_file():
            raise ConfigError(f"--terms {self.terms}: there is no such file; give a glossary, TSV or TBX")
