"""The fedlingua command: run, suite, pretrain, finetune, personalize, translate, report, status, corpus; bundle, server, site."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fedlingua.errors import FedlinguaError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Federated translation models and encoders."
)

Data = Annotated[Path | None, typer.Option("--data", help="Folder that the corpora's paths are relative to.")]
RunFolderOption = Annotated[Path, typer.Option("--run", help="Run folder.")]


@app.command()
def run(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file (TOML); it holds the keys that differ from the defaults.")
    ] = None,
    data: Data = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; goes before the experiment's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    to: Annotated[Path | None, typer.Option(help="Run folder; default: ./runs/<experiment>-<method>-<seed>.")] = None,
    profile: Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.")] = "simulation",
    nodes: Annotated[int | None, typer.Option(help="Nodes of a simulation; default: one for each site.")] = None,
    server: Annotated[Path | None, typer.Option(help="A server's folder or file: run where its sites are.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to go on with, after its last whole round.")] = None,
) -> None:
    """Run a federation to its end, show its progress, and write its folder and report."""
    from fedlingua.cli.run import resume_run, run_experiment

    if (experiment is None) == (resume is None):
        raise typer.BadParameter("give an experiment file, or --resume with a run folder")
    if resume is not None:
        if seed is not None or to is not None:
            raise typer.BadParameter("--resume keeps the run's seed and folder; leave --seed and --to out")
        resume_run(resume, data, set_ or [], profile, nodes, server, Console())
    elif experiment is not None:
        run_experiment(experiment, data, set_ or [], seed, to, profile, nodes, server, Console())


@app.command()
def suite(
    file: Annotated[Path | None, typer.Argument(help="Suite file (TOML): rows of settings, and seeds.")] = None,
    data: Data = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value for every row; goes before the suite's.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
    runs: Annotated[Path, typer.Option(help="Where runs lie; suites share equal ones.")] = Path("runs/suites"),
    to: Annotated[
        Path | None,
        typer.Option(help="The result; default: experiments/results/<folder>/<suite>, with --set ./runs/<suite>."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of a simulation; default: one for each site.")] = None,
    profile: Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.")] = "simulation",
    rebuild: Annotated[Path | None, typer.Option(help="Only write a result's tables anew, from its files.")] = None,
) -> None:
    """Run every row of a suite with every seed and write its table; goes on where it was broken off."""
    from fedlingua.cli.suite import rebuild_tables, run_suite

    if (file is None) == (rebuild is None):
        raise typer.BadParameter("give a suite file, or --rebuild with a result's folder")
    if rebuild is not None:
        rebuild_tables(rebuild, Console())
    elif file is not None:
        run_suite(file, data, set_ or [], jobs, runs, to, nodes, profile, Console())


@app.command()
def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML): corpora, share, size, schedule.")],
    data: Data = None,
    to: Annotated[
        Path | None, typer.Option(help="Directory of the model; default: the user's cache, under the recipe's name.")
    ] = None,
) -> None:
    """Train a small model with its own SentencePiece from nothing: an M2M-100, or with task = "masked-language" an XLM-R."""
    from fedlingua.cli.pretrain import pretrain_recipe

    pretrain_recipe(recipe, data or Path(), to, Console())


@app.command()
def translate(
    run: RunFolderOption,
    site: Annotated[str | None, typer.Option(help="Translate as this site does.")] = None,
    direction: Annotated[str | None, typer.Option(help="Or in this direction, also one that no site holds.")] = None,
    file: Annotated[Path | None, typer.Argument(help="Text, a sentence a line; default: standard input.")] = None,
) -> None:
    """Translate line for line with what a run has trained."""
    from fedlingua.cli.translate import translate_lines

    translate_lines(run, site, direction, file, sys.stdout)


@app.command()
def personalize(
    run: RunFolderOption,
    data: Data = None,
    site: Annotated[list[str] | None, typer.Option(help="Of the run; again for each; default: all, and a table of them.")] = None,
    round_: Annotated[int | None, typer.Option("--round", help="Whose model it goes on from; default: the best one's.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the site's training text.")] = 1,
    learning_rate: Annotated[float | None, typer.Option(help="Of the site's own model; default: the run's.")] = None,
    alpha_rate: Annotated[float, typer.Option(help="Of alpha's own steps.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Decides order, masks and dropout; default: the run's.")] = None,
) -> None:
    """Let sites go on by themselves from a round's model, and find how much of their own model they should use."""
    from fedlingua.cli.personalize import personalize_run
    from fedlingua.personalization.personalize import Personalizing

    personalize_run(run, data, site or [], round_, Personalizing(epochs, learning_rate, alpha_rate, seed), Console())


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    keep: Annotated[
        Path | None, typer.Option(help="Also write run.json, scores.json and report.md here, small and without paths.")
    ] = None,
    bandwidth: Annotated[
        float, typer.Option(metavar="MBPS", help="The server's line in Mbit/s, shared by all sites, for the cost of a round.")
    ] = 1000.0,
) -> None:
    """Write report.html anew and print the table of scores."""
    from fedlingua.report import keep_run, score_table, write_report

    page = write_report(run, bandwidth)
    console = Console()
    console.print(score_table(run))
    console.print(f"report: {page}", soft_wrap=True)
    if keep:
        keep_run(run, keep)


@app.command()
def status(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
) -> None:
    """Show how far a run is: each site's round, when it was last heard, its bytes and failures."""
    from fedlingua.cli.status import show_status

    show_status(run, Console())


@app.command()
def bundle(to: Annotated[Path | None, typer.Option(help="Also write the bundle to this file.")] = None) -> None:
    """Show the hash of the bundle that this checkout's runs carry, which a site approves."""
    from fedlingua.deployment.bundle import build_bundle, bundle_hash
    from fedlingua.files import APP_DIR

    content = build_bundle(APP_DIR)
    if to:
        to.write_bytes(content)
    print(bundle_hash(content))


corpus_app = typer.Typer(no_args_is_help=True, help="Text for the sites of a federation.")
app.add_typer(corpus_app, name="corpus")


@corpus_app.command("prepare")
def corpus_prepare(
    name: Annotated[str, typer.Argument(help="ted2020, europarl, mtnt or uncorpus.")],
    source: Annotated[
        Path, typer.Option("--from", help="Folder of the downloads: OPUS's Moses files, zipped or not; the other two unpacked.")
    ],
    to: Annotated[Path, typer.Option(help="Data folder; the splits go into a folder in it.")],
    uniform: Annotated[bool, typer.Option("--uniform", help="Every pair the same size (Liu et al. 2023, appendix C).")] = False,
    no_leaks: Annotated[bool, typer.Option("--no-leaks", help="No sentence in two splits, at any two sites.")] = False,
    key: Annotated[str, typer.Option(help="Key of the shuffle and of the choice.")] = "fedlingua",
) -> None:
    """Turn downloads into the papers' splits and sizes: of Liu et al. 2023 (ted2020, europarl), of MetaSend (mtnt, uncorpus)."""
    from fedlingua.cli.corpus import prepare_corpus

    prepare_corpus(name, source, to, uniform, no_leaks, key, Console())


finetune_app = typer.Typer(no_args_is_help=True, help="Fine-tune a pre-trained encoder to tag or to label, and score it.")
app.add_typer(finetune_app, name="finetune")
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


@finetune_app.command("ner")
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
) -> None:
    """Named entities: micro, macro and weighted F1, strict and type matching."""
    from fedlingua.cli.finetune import finetune
    from fedlingua.finetuning.loop import FineTuning

    how = FineTuning(epochs, learning_rate, batch_size, seed, precision)
    finetune("ner", (encoder, run, site), data, to, how, max_tokens, device, threads, Console(), layout)


@finetune_app.command("pairs")
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
) -> None:
    """Relations between two marked mentions, or assertions about one: micro, macro and weighted F1 over labels, accuracy."""
    from fedlingua.cli.finetune import finetune
    from fedlingua.finetuning.loop import FineTuning

    how = FineTuning(epochs, learning_rate, batch_size, seed, precision)
    finetune("pairs", (encoder, run, site), data, to, how, max_tokens, device, threads, Console())


server_app = typer.Typer(no_args_is_help=True, help="The server of a federation across machines.")
site_app = typer.Typer(no_args_is_help=True, help="One site of a federation across machines.")
app.add_typer(server_app, name="server")
app.add_typer(site_app, name="site")
ServerFileArgument = Annotated[Path, typer.Argument(help="The server's folder, or its server.toml.")]
SiteFileArgument = Annotated[Path, typer.Argument(help="The site's folder, or its site.toml.")]


@server_app.command("init")
def server_init(
    to: Annotated[Path, typer.Option(help="The server's folder.")] = Path("server"),
    name: Annotated[str, typer.Option(help="The federation's name.")] = "federation",
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address that sites reach the server by; again for each.")
    ] = None,
    fleet: Annotated[str, typer.Option(help="Where sites connect: host:port to listen on.")] = "0.0.0.0:9092",
    control: Annotated[str, typer.Option(help="Where runs are submitted; whoever reaches it may start one.")] = "127.0.0.1:9093",
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no authentication: for a trial on one machine.")] = False,
) -> None:
    """Make certificates, a federation file and server.toml; asks for the host when none is given."""
    from fedlingua.cli import server

    if not host and not insecure and sys.stdin.isatty():
        host = typer.prompt("Names or addresses that sites reach this server by, separated by commas").replace(" ", "").split(",")
    server.init(to, name, host or [], fleet, control, insecure, Console())


@server_app.command("add")
def server_add(
    file: ServerFileArgument,
    join_files: Annotated[list[Path], typer.Argument(help="Files that the sites' `site init` wrote.")],
) -> None:
    """Enter sites into the federation file; a running server lets them join within seconds."""
    from fedlingua.cli import server

    server.add(file, join_files, Console())


@server_app.command("start")
def server_start(file: ServerFileArgument) -> None:
    """Run the SuperLink, with TLS and authentication of nodes, until Ctrl-C or SIGTERM."""
    from fedlingua.cli import server

    server.start(file, Console())


@site_app.command("init")
def site_init(
    name: Annotated[str, typer.Option(prompt="The site's name", help="The site's name.")],
    direction: Annotated[
        str,
        typer.Option(
            prompt="Direction, such as de-fr, or a language",
            help="Source and target, such as de-fr; a language alone, such as es, of text that is not translated.",
        ),
    ],
    server: Annotated[str, typer.Option(prompt="The server's host:port", help="Where the server's fleet API is: host:port.")],
    to: Annotated[Path, typer.Option(help="The site's folder.")] = Path("site"),
    tsv: Annotated[Path | None, typer.Option(help="Corpus: a file with two columns.")] = None,
    moses: Annotated[str | None, typer.Option(help="Corpus: the stem of two files, X for X.de and X.fr.")] = None,
    lines: Annotated[Path | None, typer.Option(help="Corpus in one language: a file with a document a line.")] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="The same: a file with a JSON object a line, the document in its `text`.")
    ] = None,
    notes: Annotated[Path | None, typer.Option(help="The same: a folder with a .txt file a document.")] = None,
    deidentify_with: Annotated[
        str | None, typer.Option(help="Function that every document passes first: package.module:function.")
    ] = None,
    phrasebook: Annotated[str | None, typer.Option(help="Corpus: a register of the demo grammar, for a trial.")] = None,
    sentences: Annotated[int | None, typer.Option(help="With --phrasebook: how many sentences.")] = None,
    authority: Annotated[Path | None, typer.Option(help="The server's ca.crt.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no key: for a trial on one machine.")] = False,
) -> None:
    """Make the site's folder: site.toml, its key, and the file for the server's operator."""
    from fedlingua.cli import site

    files = {"tsv": tsv, "lines": lines, "jsonl": jsonl, "notes": notes}
    corpus = {key: path and str(path) for key, path in files.items()}
    corpus |= {"moses": moses, "phrasebook": phrasebook}
    if not any(corpus.values()) and sys.stdin.isatty():
        translates = "-" in direction
        wanted = "a file with two columns, source and target" if translates else "a file with a document a line"
        corpus["tsv" if translates else "lines"] = typer.prompt(f"Corpus: {wanted}")
    if authority is None and not insecure:
        raise typer.BadParameter("give --authority, the ca.crt of the server; or --insecure for a trial on one machine")
    asked = {**corpus, "sentences": sentences, "deidentify-with": deidentify_with}
    given = {key: value for key, value in asked.items() if value is not None}
    site.init(to, name, direction, given, server, None if insecure else authority, Console())


@site_app.command("check")
def site_check(
    file: SiteFileArgument = Path("site"),
    experiment: Annotated[Path | None, typer.Option(help="The run's experiment file; default: the demo's settings.")] = None,
    federation: Annotated[Path | None, typer.Option(help="The server's federation file.")] = None,
    expect: Annotated[str, typer.Option(help="The server's fingerprint, or its beginning.")] = "",
    knock: Annotated[bool, typer.Option(help="Join the server for a moment.")] = True,
) -> None:
    """Prove that the site is ready: corpora, backbone, memory, disk, certificate, key; and list all that it will ever send."""
    from fedlingua.cli import site

    site.check(file, experiment, federation, expect, knock, Console())


@site_app.command("approve")
def site_approve(
    bundle: Annotated[str | None, typer.Argument(help="The bundle's hash; default: the one that this checkout makes.")] = None,
    file: Annotated[Path, typer.Option("--site", help="The site's folder, or its site.toml.")] = Path("site"),
) -> None:
    """Let a bundle run at this site."""
    from fedlingua.cli import site

    site.approve(file, bundle, Console())


@site_app.command("start")
def site_start(file: SiteFileArgument = Path("site")) -> None:
    """Run the SuperNode until Ctrl-C or SIGTERM; it refuses bundles that are not approved."""
    from fedlingua.cli import site

    site.start(file, Console())


@site_app.command("translate")
def site_translate(
    text: Annotated[Path | None, typer.Argument(help="Text, a sentence a line; default: standard input.")] = None,
    file: Annotated[Path, typer.Option("--site", help="The site's folder, or its site.toml.")] = Path("site"),
    name: Annotated[str | None, typer.Option(help="Which site, where the node speaks for several.")] = None,
    run: Annotated[str | None, typer.Option(help="Id of the run; default: the newest that delivered.")] = None,
) -> None:
    """Translate line for line with what the federation has delivered to this site; needs no server."""
    from fedlingua.cli import site

    site.translate(file, name, run, text)


def main() -> None:
    """Entry point: what a user can cause is one message and exit code 1; Ctrl-C is 130 (typer sees to it)."""
    try:
        app()
    except FedlinguaError as error:
        Console(stderr=True).print(f"error: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
