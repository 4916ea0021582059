"""Options that several commands share, each declared once. A dataclass is a group of them: a command takes it as one parameter."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlingua.desk.cli.completion import profiles, run_folders, sites_of_run

if TYPE_CHECKING:  # --help and completion do without numpy
    from fedlingua.desk.translator import Decoding

Data = Annotated[Path | None, typer.Option("--data", help="Folder that the corpora's paths are relative to.")]
Profile = Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.", shell_complete=profiles)]
Nodes = Annotated[int | None, typer.Option(min=1, help="Nodes of a simulation; default: one for each site.")]
RunArgument = Annotated[Path, typer.Argument(help="Run folder.", shell_complete=run_folders)]
RunOption = Annotated[Path, typer.Option("--run", help="Run folder.", shell_complete=run_folders)]
SitesOption = Annotated[
    list[str] | None, typer.Option("--site", help="Of the run; again for each; default: all.", shell_complete=sites_of_run)
]


@dataclass(frozen=True)
class DecodingOptions:
    """How to translate."""

    beam: Annotated[int | None, typer.Option(help="Beams of the search; default: the run's.")] = None
    batch: Annotated[
        int,
        typer.Option(help="Most sentences translated at once; 1: each by itself; 0: as many of a length as fit 4,000 tokens."),
    ] = 0
    max_tokens: Annotated[
        int | None, typer.Option(help="A longer sentence is cut there, and refused by serve; default: the run's.")
    ] = None
    max_decode_tokens: Annotated[int | None, typer.Option(help="Most tokens of a translation; default: the run's.")] = None
    threads: Annotated[int, typer.Option(min=0, help="Of torch; 0: a core each. A small model is faster with 1.")] = 0

    def checked(self) -> "Decoding":
        """The options of the search.

        Raises:
            ConfigError: a number is out of range.
        """
        from fedlingua.desk.translator import Decoding

        decoding = Decoding(self.beam, self.max_tokens, self.max_decode_tokens, self.batch)
        decoding.check()
        return decoding

    def set_threads(self) -> None:
        """Give torch so many threads; it is imported here, since that takes seconds."""
        if self.threads:
            import torch

            torch.set_num_threads(self.threads)


@dataclass(frozen=True)
class GuidedOptions(DecodingOptions):
    """How to translate, and what has a say in it."""

    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Look at a site's memory, where `fedlingua memory` has made one.")
    ] = True
    terms: Annotated[
        Path | None,
        typer.Option(
            help="Glossary: .tsv, with a term, TAB and its translation a line, or .tbx. A name that ends in a direction, as "
            "medical.de-en.tsv, tells its columns, also the other way round; serve needs it."
        ),
    ] = None

    def checked(self) -> "Decoding":
        """The options of the search.

        Raises:
            ConfigError: a number is out of range, or there is no such glossary.
        """
        decoding = replace(super().checked(), memory=self.memory, terms=self.terms)
        decoding.check()
        return decoding


@dataclass(frozen=True)
class TranslateOptions(GuidedOptions):
    """What is translated, and where it goes. file: None is standard input; to: None is standard output."""

    text: Annotated[
        Path | None,
        typer.Argument(help="Text, a sentence a line, or a translation memory (.tmx); .gz is unpacked; default: standard input."),
    ] = None
    to: Annotated[
        Path | None,
        typer.Option(
            help="Write here, whole or not at all, instead of to standard output: a line for each line; pairs where the name ends "
            "in .tmx, .tsv, .jsonl (also .gz) or .parquet."
        ),
    ] = None


@dataclass(frozen=True)
class ExportOptions:
    """Where an export goes, and in which form."""

    to: Annotated[Path, typer.Option(help="Folder to write; there whole or not at all.")]
    form: Annotated[
        str,
        typer.Option(
            help="adapter, peft, transformers, ctranslate2; default: adapter, of LoRA peft, of a whole model transformers."
        ),
    ] = ""
    quantization: Annotated[str, typer.Option(help="Of ctranslate2: int8, float16, ...; default: float32.")] = ""
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False

    def check(self) -> None:
        """
        Raises:
            ConfigError: an unknown form, or a folder that is not to be written.
        """
        from fedlingua.desk.export.forms import check_form, check_place

        check_form(self.form, self.quantization)
        check_place(self.to, self.force)
