"""`fedlingua site`: its commands and their options."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedlingua.desk.cli import export_options
from fedlingua.desk.cli import translate_options as options
from fedlingua.desk.cli.output import Answer, Commands, console, example

commands = Commands(no_args_is_help=True, help="One site of a federation across machines.")
SiteFileArgument = Annotated[Path, typer.Argument(help="The site's folder, or its site.toml.")]


@commands.command(
    "init",
    epilog=example(
        "fedlingua site init --name hospital --direction de-fr --server server.example.org:9092 "
        "--tsv de-fr.tsv.gz --authority ca.crt"
    ),
)
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
    tmx: Annotated[Path | None, typer.Option(help="Corpus: a translation memory.")] = None,
    moses: Annotated[str | None, typer.Option(help="Corpus: the stem of two files, X for X.de and X.fr.")] = None,
    lines: Annotated[Path | None, typer.Option(help="Corpus in one language: a file with a document a line.")] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="A file with a JSON object a line: the document in its `text`, or a pair in two fields, as {de, fr}."),
    ] = None,
    notes: Annotated[Path | None, typer.Option(help="The same: a folder with a .txt file a document.")] = None,
    deidentify_with: Annotated[
        str | None, typer.Option(help="Function that every document passes first: package.module:function.")
    ] = None,
    phrasebook: Annotated[str | None, typer.Option(help="Corpus: a register of the demo grammar, for a trial.")] = None,
    sentences: Annotated[int | None, typer.Option(help="With --phrasebook: how many sentences.")] = None,
    authority: Annotated[Path | None, typer.Option(help="The server's ca.crt.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no key: for a trial on one machine.")] = False,
) -> Answer:
    """Make the site's folder: site.toml, its key, and the file for the server's operator."""
    from fedlingua.common.languages import parse_written
    from fedlingua.desk.cli import site

    files = {"tsv": tsv, "tmx": tmx, "lines": lines, "jsonl": jsonl, "notes": notes}
    corpus = {key: path and str(path) for key, path in files.items()}
    corpus |= {"moses": moses, "phrasebook": phrasebook}
    if not any(corpus.values()) and sys.stdin.isatty():
        translates = not parse_written(direction).is_one_language
        wanted = "a file with two columns, source and target" if translates else "a file with a document a line"
        corpus["tsv" if translates else "lines"] = typer.prompt(f"Corpus: {wanted}")
    if authority is None and not insecure:
        raise typer.BadParameter("give --authority, the ca.crt of the server; or --insecure for a trial on one machine")
    asked = {**corpus, "sentences": sentences, "deidentify-with": deidentify_with}
    given = {key: value for key, value in asked.items() if value is not None}
    return site.init(to, name, direction, given, server, None if insecure else authority, console())


@commands.command("check", epilog=example("fedlingua site check site --federation federation.toml"))
def site_check(
    file: SiteFileArgument = Path("site"),
    experiment: Annotated[Path | None, typer.Option(help="The run's experiment file; default: the demo's settings.")] = None,
    federation: Annotated[Path | None, typer.Option(help="The server's federation file.")] = None,
    expect: Annotated[str, typer.Option(help="The server's fingerprint, or its beginning.")] = "",
    knock: Annotated[bool, typer.Option(help="Join the server for a moment.")] = True,
) -> Answer:
    """Prove that the site is ready: corpora, backbone, memory, disk, certificate, key; and list all that it will ever send."""
    from fedlingua.desk.cli import site

    return site.check(file, experiment, federation, expect, knock, console())


@commands.command(
    "approve", epilog=example("fedlingua site approve --experiment experiments/deployment/demo.toml --federation federation.toml")
)
def site_approve(
    bundle: Annotated[str | None, typer.Argument(help="The bundle's hash; default: the one that this checkout makes.")] = None,
    file: Annotated[Path, typer.Option("--site", help="The site's folder, or its site.toml.")] = Path("site"),
    experiment: Annotated[Path | None, typer.Option(help="The run's experiment file: its settings are approved too.")] = None,
    federation: Annotated[Path | None, typer.Option(help="The server's federation file, with the text rules.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, as the server gives it to the run.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Let a bundle run at this site, and under it an experiment, which is shown in words first."""
    from fedlingua.desk.cli import site

    if experiment and not federation:
        raise typer.BadParameter("--experiment needs --federation, the server's file, which says how text is split")
    run = (experiment, federation) if experiment and federation else None
    return site.approve(file, bundle, run, set_ or [], yes, console())


@commands.command("log", epilog=example("fedlingua site log site --last 20"))
def site_log(
    file: SiteFileArgument = Path("site"),
    last: Annotated[int, typer.Option(min=1, help="How many lines to show, the newest.")] = 50,
) -> Answer:
    """Show what was asked of this site and what left it, and verify that the log is whole: exit code 1 where it is not."""
    from fedlingua.desk.cli import site

    return site.show_log(file, last, console())


@commands.command("overlap-key", epilog=example("fedlingua site overlap-key keys/overlap.key"))
def site_overlap_key(
    file: Annotated[Path, typer.Argument(help="Where to write it; or, with --show, the key's file.")] = Path("overlap.key"),
    show: Annotated[bool, typer.Option("--show", help="Make none: show by which digits this one is told from others.")] = False,
) -> Answer:
    """Make the key that the sites of a federation share, for runs that compare their text (overlap); the server must not have it."""
    from fedlingua.desk.cli import site

    return site.overlap_key(file, show, console())


@commands.command("start", epilog=example("fedlingua site start site"))
def site_start(file: SiteFileArgument = Path("site")) -> Answer:
    """Run the SuperNode until Ctrl-C or SIGTERM; it refuses bundles that are not approved."""
    from fedlingua.desk.cli import site

    return site.start(file, console())


@commands.command("translate", epilog=example("fedlingua site translate --site site letter.txt"))
def site_translate(
    text: options.Text = None,
    file: Annotated[Path, typer.Option("--site", help="The site's folder, or its site.toml.")] = Path("site"),
    name: Annotated[str | None, typer.Option(help="Which site, where the node speaks for several.")] = None,
    run: Annotated[str | None, typer.Option(help="Id of the run; default: the newest that delivered.")] = None,
    to: options.To = None,
    beam: options.Beam = None,
    batch: options.Batch = 0,
    max_tokens: options.MaxTokens = None,
    max_decode_tokens: options.MaxDecodeTokens = None,
    threads: options.Threads = 0,
) -> Answer:
    """Translate line for line with what the federation has delivered to this site; needs no server."""
    from fedlingua.desk.cli import site

    asked = options.asked(text, to, beam, batch, max_tokens, max_decode_tokens, threads)
    return site.translate(file, name, run, asked)


@commands.command("export", epilog=example("fedlingua site export --site site --to hospital-model"))
def site_export(
    to: export_options.To,
    file: Annotated[Path, typer.Option("--site", help="The site's folder, or its site.toml.")] = Path("site"),
    name: Annotated[str | None, typer.Option(help="Which site, where the node speaks for several.")] = None,
    run: Annotated[str | None, typer.Option(help="Id of the run; default: the newest that delivered.")] = None,
    form: export_options.Form = "",
    quantization: export_options.Quantization = "",
    force: export_options.Force = False,
) -> Answer:
    """Take away what the federation has delivered to this site, with its model card; needs no server."""
    from fedlingua.desk.cli import site

    return site.export(file, name, run, to, form, quantization, force, console())
