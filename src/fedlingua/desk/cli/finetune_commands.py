"""`fedlingua finetune`: tasks and their options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedlingua.desk.cli.output import Answer, Commands, console, example

commands = Commands(no_args_is_help=True, help="Fine-tune a pre-trained encoder to tag or to label, and score it.")
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder: a directory in transformers' layout (XLM-R, RoBERTa, BERT), or as a run's backbone is named: demo-encoder, a "
        "recipe's name, a hub id that is pinned here."
    ),
]
RunOfEncoder = Annotated[Path | None, typer.Option("--run", help="Or a run: the encoder that it has pre-trained.")]
SiteOfEncoder = Annotated[str | None, typer.Option("--site", help="With --run: whose, where sites end with different ones.")]
ResultOption = Annotated[Path | None, typer.Option(help="Folder of the result; default: ./runs/<task>-<data>-<encoder>-<seed>.")]
Epochs = Annotated[int, typer.Option(min=1, help="Times through the training text; the best on dev is kept.")]
LearningRate = Annotated[float, typer.Option(help="AdamW's, at its highest.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Sequences of a step.")]
SeedOption = Annotated[int, typer.Option(help="Decides the head, order and dropout.")]
MaxTokens = Annotated[
    int | None, typer.Option(help="Subwords of a sequence; default: what the encoder can, up to 256.", show_default=False)
]
Threads = Annotated[int, typer.Option(min=1, help="torch threads; other counts change the last bits.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where it trains.")]
Precision = Annotated[Literal["fp32", "bf16"], typer.Option(help="Of the arithmetic; weights stay fp32.")]


@commands.command("ner", epilog=example("fedlingua finetune ner --encoder demo-encoder --data NCBI-disease --epochs 3"))
def finetune_ner(
    data: Annotated[Path, typer.Option(help="Folder with train, devel and test.")],
    encoder: EncoderOption = None,
    run: RunOfEncoder = None,
    site: SiteOfEncoder = None,
    layout: Annotated[
        Literal["iob", "i2b2"], typer.Option(help="iob: token and tag a line (.tsv, .tsv.gz); i2b2: notes and entries.")
    ] = "iob",
    to: ResultOption = None,
    epochs: Epochs = 10,
    learning_rate: LearningRate = 5e-5,
    batch_size: BatchSize = 16,
    seed: SeedOption = 2022,
    max_tokens: MaxTokens = None,
    threads: Threads = 1,
    device: Device = "cpu",
    precision: Precision = "fp32",
) -> Answer:
    """Named entities: micro, macro and weighted F1, strict and type matching."""
    from fedlingua.desk.cli.finetune import finetune
    from fedlingua.desk.finetuning.settings import FineTuning

    how = FineTuning(epochs, learning_rate, batch_size, seed, precision)
    return finetune("ner", (encoder, run, site), data, to, how, max_tokens, device, threads, console(), layout)


@commands.command("pairs", epilog=example("fedlingua finetune pairs --run runs/encoder --data relations --to runs/relations"))
def finetune_pairs(
    data: Annotated[Path, typer.Option(help="Folder with train.jsonl, devel.jsonl and test.jsonl, plain or .gz.")],
    encoder: EncoderOption = None,
    run: RunOfEncoder = None,
    site: SiteOfEncoder = None,
    to: ResultOption = None,
    epochs: Epochs = 10,
    learning_rate: LearningRate = 5e-5,
    batch_size: BatchSize = 16,
    seed: SeedOption = 2022,
    max_tokens: MaxTokens = None,
    threads: Threads = 1,
    device: Device = "cpu",
    precision: Precision = "fp32",
) -> Answer:
    """Relations between two marked mentions, or assertions about one: micro, macro and weighted F1 over labels, accuracy."""
    from fedlingua.desk.cli.finetune import finetune
    from fedlingua.desk.finetuning.settings import FineTuning

    how = FineTuning(epochs, learning_rate, batch_size, seed, precision)
    return finetune("pairs", (encoder, run, site), data, to, how, max_tokens, device, threads, console())
