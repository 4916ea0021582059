"""Options that `fedlingua export` and `fedlingua site export` share."""

from pathlib import Path
from typing import Annotated

import typer

To = Annotated[Path, typer.Option(help="Folder to write; there whole or not at all.")]
Form = Annotated[
    str,
    typer.Option(help="adapter, peft, transformers, ctranslate2; default: adapter, of LoRA peft, of a whole model transformers."),
]
Quantization = Annotated[str, typer.Option(help="Of ctranslate2: int8, float16, ...; default: float32.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier export.")]
