"""Options that `fedlingua translate` and `fedlingua site translate` share; those of decoding are `fedlingua serve`'s, too."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # torch takes seconds to load, and --help needs none
    from fedlingua.desk.cli.translate import Asked


Text = Annotated[
    Path | None,
    typer.Argument(help="Text, a sentence a line, or a translation memory (.tmx); .gz is unpacked; default: standard input."),
]
To = Annotated[
    Path | None,
    typer.Option(
        help="Write here, whole or not at all, instead of to standard output: a line for each line; pairs where the name ends in .tmx, "
        ".tsv, .jsonl (also .gz) or .parquet."
    ),
]
Beam = Annotated[int | None, typer.Option(help="Beams of the search; default: the run's.")]
Batch = Annotated[
    int, typer.Option(help="Most sentences translated at once; 1: each by itself; 0: as many of a length as fit 4,000 tokens.")
]
MaxTokens = Annotated[int | None, typer.Option(help="A longer sentence is cut there; default: the run's.")]
MaxDecodeTokens = Annotated[int | None, typer.Option(help="Most tokens of a translation; default: the run's.")]
Threads = Annotated[int, typer.Option(min=0, help="Of torch; 0: a core each. A small model is faster with 1.")]


def asked(
    file: Path | None,
    to: Path | None,
    beam: int | None,
    batch: int,
    max_tokens: int | None,
    max_decode_tokens: int | None,
    threads: int,
) -> "Asked":
    """The options as one."""
    from fedlingua.desk.cli.translate import Asked
    from fedlingua.desk.translator import Decoding

    return Asked(file, to, Decoding(beam, max_tokens, max_decode_tokens, batch), threads)
