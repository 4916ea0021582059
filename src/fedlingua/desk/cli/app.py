"""The fedlingua command: training, judging and using models, and the groups corpus, finetune, server and site."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedlingua.desk.cli import corpus_commands, export_options, finetune_commands, server_commands, site_commands
from fedlingua.desk.cli import translate_options as options
from fedlingua.desk.cli.output import Answer, Commands, console, example, run_commands

app = Commands(no_args_is_help=True, pretty_exceptions_enable=False, help="Federated translation models and encoders.")
app.add_typer(corpus_commands.commands, name="corpus")
app.add_typer(finetune_commands.commands, name="finetune")
app.add_typer(server_commands.commands, name="server")
app.add_typer(site_commands.commands, name="site")

Data = Annotated[Path | None, typer.Option("--data", help="Folder that the corpora's paths are relative to.")]
RunFolderOption = Annotated[Path, typer.Option("--run", help="Run folder.")]


@app.command(
    epilog=example(
        "fedlingua run experiments/demo.toml --set rounds=3 --seed 2023", "fedlingua run --resume runs/demo-adapter-families-2022"
    )
)
def run(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file (TOML); it holds the keys that differ from the defaults.")
    ] = None,
    data: Data = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; goes before the experiment's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    to: Annotated[Path | None, typer.Option(help="Run folder; default: ./runs/<experiment>-<method>-<seed>.")] = None,
    profile: Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.")] = "simulation",
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a simulation; default: one for each site.")] = None,
    server: Annotated[Path | None, typer.Option(help="A server's folder or file: run where its sites are.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to go on with, after its last whole round.")] = None,
) -> Answer:
    """Run a federation to its end, show its progress, and write its folder and report."""
    from fedlingua.desk.cli.run import resume_run, run_experiment, told_run

    if (experiment is None) == (resume is None):
        raise typer.BadParameter("give an experiment file, or --resume with a run folder")
    if resume is not None:
        if seed is not None or to is not None:
            raise typer.BadParameter("--resume keeps the run's seed and folder; leave --seed and --to out")
        folder = resume_run(resume, data, set_ or [], profile, nodes, server, console())
    else:
        assert experiment is not None
        folder = run_experiment(experiment, data, set_ or [], seed, to, profile, nodes, server, console())
    return told_run(folder)


@app.command(epilog=example("fedlingua suite experiments/fed_mnmt/table2_phrasebook.toml --jobs 2"))
def suite(
    file: Annotated[Path | None, typer.Argument(help="Suite file (TOML): rows of settings, and seeds; or FILE:VARIANT.")] = None,
    data: Data = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value for every row; goes before the suite's.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
    runs: Annotated[Path, typer.Option(help="Where runs lie; suites share equal ones.")] = Path("runs/suites"),
    to: Annotated[
        Path | None,
        typer.Option(help="The result; default: experiments/results/<folder>/<suite>, with --set ./runs/<suite>."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a simulation; default: one for each site.")] = None,
    profile: Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.")] = "simulation",
    rebuild: Annotated[Path | None, typer.Option(help="Only write a result's tables anew, from its files.")] = None,
) -> Answer:
    """Run every row of a suite with every seed and write its table; goes on where it was broken off."""
    from fedlingua.desk.cli.suite import rebuild_tables, run_suite, told_suite

    if (file is None) == (rebuild is None):
        raise typer.BadParameter("give a suite file, or --rebuild with a result's folder")
    if rebuild is not None:
        rebuild_tables(rebuild, console())
        return told_suite(rebuild)
    assert file is not None
    return told_suite(run_suite(file, data, set_ or [], jobs, runs, to, nodes, profile, console()))


@app.command(epilog=example("fedlingua pretrain experiments/backbones/tatoeba_half.toml --data ../shared/data"))
def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML): corpora, share, size, schedule.")],
    data: Data = None,
    to: Annotated[
        Path | None, typer.Option(help="Directory of the model; default: the user's cache, under the recipe's name.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value, as training.device=cpu; goes before the recipe's.")
    ] = None,
) -> Answer:
    """Train a small model with its own SentencePiece from nothing: an M2M-100, or with task = "masked-language" an XLM-R. The same command
    goes on with a training that was broken off.
    """
    from fedlingua.desk.cli.pretrain import pretrain_recipe, told_backbone
    from fedlingua.desk.pretraining.demo import demo_encoder

    if str(recipe) == "demo-encoder":
        return {"backbone": demo_encoder()}

    return told_backbone(pretrain_recipe(recipe, data or Path(), to, set_ or [], console()))


@app.command(epilog=example("fedlingua translate --run runs/demo-adapter-families-2022 --site hospital letter.txt"))
def translate(
    file: options.Text = None,
    run: Annotated[Path | None, typer.Option("--run", help="Run folder; or an adapter, below.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="Folder that `fedlingua export --form adapter` wrote.")] = None,
    backbone: Annotated[str, typer.Option(help="With --adapter: where the backbone lies, if not where its name says.")] = "",
    site: Annotated[str | None, typer.Option(help="Translate as this site does.")] = None,
    direction: Annotated[str | None, typer.Option(help="Or in this direction, also one that no site holds.")] = None,
    to: options.To = None,
    beam: options.Beam = None,
    batch: options.Batch = 0,
    max_tokens: options.MaxTokens = None,
    max_decode_tokens: options.MaxDecodeTokens = None,
    threads: options.Threads = 0,
) -> Answer:
    """Translate line for line with what a run has trained."""
    if (run is None) == (adapter is None):
        raise typer.BadParameter("give --run with a run's folder, or --adapter with an exported one")
    if adapter is not None and (site or direction):
        raise typer.BadParameter("an exported adapter has its own direction; leave --site and --direction out")
    if backbone and run is not None:
        raise typer.BadParameter("--backbone goes with --adapter; a run says itself what it was trained on")
    asked = options.asked(file, to, beam, batch, max_tokens, max_decode_tokens, threads)
    from fedlingua.desk.cli.translate import translate_adapter, translate_run

    if adapter is not None:
        return translate_adapter(adapter, backbone, asked, sys.stdout)
    assert run is not None
    return translate_run(run, site, direction, asked, sys.stdout)


@app.command(epilog=example("fedlingua export --run runs/demo-adapter-families-2022 --site hospital --to hospital-model"))
def export(
    run: RunFolderOption,
    to: export_options.To,
    site: Annotated[str | None, typer.Option(help="What this site uses.")] = None,
    direction: Annotated[
        str | None, typer.Option(help="Or what the run has for this direction, also one that no site holds.")
    ] = None,
    form: export_options.Form = "",
    quantization: export_options.Quantization = "",
    force: export_options.Force = False,
) -> Answer:
    """Take a model away: an adapter, a LoRA for peft, a whole model for transformers or CTranslate2, with its model card."""
    from fedlingua.desk.cli.export import export_run

    return export_run(run, site, direction, to, form, quantization, force, console())


@app.command(epilog=example("fedlingua serve --run runs/demo-adapter-families-2022 --port 8000"))
def serve(
    run: RunFolderOption,
    host: Annotated[
        str, typer.Option(help="Address to listen at; another than loopback lets everybody there translate.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    beam: options.Beam = None,
    batch: options.Batch = 0,
    max_tokens: Annotated[int | None, typer.Option(help="A longer sentence is refused; default: the run's.")] = None,
    max_decode_tokens: options.MaxDecodeTokens = None,
    threads: options.Threads = 0,
    max_sentences: Annotated[int, typer.Option(min=1, help="Of one request.")] = 100,
    max_characters: Annotated[int, typer.Option(min=1, help="Of one sentence.")] = 2000,
    max_waiting: Annotated[int, typer.Option(min=1, help="Requests that wait; more are sent away with 503.")] = 64,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="A request that waits longer is given up, with 504.")
    ] = 60.0,
) -> None:
    """Translate over HTTP, for all sites and directions of a run, with a page to type in."""
    from fedlingua.desk.cli.serve import serve_run
    from fedlingua.desk.serving.guard import Limits
    from fedlingua.desk.translator import Decoding

    limits = Limits(max_sentences, max_characters, max_waiting, timeout)
    decoding = Decoding(beam, max_tokens, max_decode_tokens, batch)
    serve_run(run, host, port, decoding, limits, threads)


@app.command(
    epilog=example(
        "fedlingua score --run runs/demo-adapter-families-2022 --metric bleu --metric ter",
        "fedlingua score --source text.de --hypothesis mt.fr --reference text.fr --direction de-fr",
    )
)
def score(
    run: Annotated[Path | None, typer.Option("--run", help="Run folder: what its sites translated; or the files below.")] = None,
    site: Annotated[list[str] | None, typer.Option(help="Of the run; again for each; default: all.")] = None,
    source: Annotated[Path | None, typer.Option(help="Sentences, one a line.")] = None,
    hypothesis: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    reference: Annotated[Path | None, typer.Option(help="What they are compared with.")] = None,
    direction: Annotated[str, typer.Option(help="Of the files, as de-fr.")] = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="bleu, chrf, chrf++, ter, length-ratio, off-target, comet; default: all but comet.")
    ] = None,
    model: Annotated[str, typer.Option(help="Of COMET: a checkpoint (.ckpt) or a name on the hub.")] = "wmt22-comet-da",
) -> Answer:
    """Score translations: of a run, whose scores.json keeps the result, or of files."""
    from fedlingua.desk.cli.score import DEFAULT_METRICS, score_files, score_run

    files = (source, hypothesis, reference)
    if (run is None) == (None in files) and (run is None or any(files)):
        raise typer.BadParameter("give --run with a run's folder, or all of --source, --hypothesis, --reference and --direction")
    names = metric or list(DEFAULT_METRICS)
    if run is not None:
        return score_run(run, site or [], names, model, console())
    assert source is not None
    assert hypothesis is not None
    assert reference is not None
    return score_files(source, hypothesis, reference, direction, names, model, console())


@app.command(epilog=example("fedlingua compare runs/demo-adapter-local-2022 runs/demo-adapter-families-2022"))
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or RESULT/METHOD-SEED of a kept one; the first is what the others are compared with."),
    ],
    metric: Annotated[str, typer.Option(help="bleu, chrf, chrf++, ter, comet, ...; default: the first of the runs' task.")] = "",
    samples: Annotated[int, typer.Option(min=40, help="Of the paired bootstrap.")] = 1000,
    sentences: Annotated[
        int, typer.Option(min=0, help="Of each site, those that the first two runs translate most differently.")
    ] = 0,
    to: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write it as a page, with plots.")] = None,
    public: Annotated[
        str | None, typer.Option(help="Corpus that all runs translate anew, instead of what their sites' test text tells.")
    ] = None,
    direction: Annotated[list[str] | None, typer.Option(help="Of --public, such as de-fr; again for each.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of --public, where its ending does not tell.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="More of --public, as in a federation file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Of --public, at most so many pairs a direction; 0: all.")] = 0,
    model: Annotated[str, typer.Option(help="Of COMET, with --public: a checkpoint or a name on the hub.")] = "wmt22-comet-da",
) -> Answer:
    """Compare runs: by site with a paired bootstrap, over all sites, what they cost, and whether joining helps each site."""
    from fedlingua.desk.cli.compare import PublicText, as_object, compare_runs

    if public is None and (direction or kind or option or limit):
        raise typer.BadParameter("--direction, --kind, --option and --limit go with --public")
    text = PublicText(public, direction or [], kind, option or [], limit) if public else None
    return {**as_object(compare_runs(runs, metric, samples, sentences, console(), text, model, to)), "report": to}


@app.command(epilog=example("fedlingua personalize --run runs/demo-adapter-families-2022 --site hospital --epochs 2"))
def personalize(
    run: RunFolderOption,
    data: Data = None,
    site: Annotated[list[str] | None, typer.Option(help="Of the run; again for each; default: all, and a table of them.")] = None,
    round_: Annotated[int | None, typer.Option("--round", help="Whose model it goes on from; default: the best one's.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the site's training text.")] = 1,
    learning_rate: Annotated[float | None, typer.Option(help="Of the site's own model; default: the run's.")] = None,
    alpha_rate: Annotated[float, typer.Option(help="Of alpha's own steps.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Decides order, masks and dropout; default: the run's.")] = None,
) -> Answer:
    """Let sites go on by themselves from a round's model, and find how much of their own model they should use."""
    from fedlingua.desk.cli.personalize import personalize_run
    from fedlingua.personalization.settings import Personalizing

    return personalize_run(run, data, site or [], round_, Personalizing(epochs, learning_rate, alpha_rate, seed), console())


@app.command(epilog=example("fedlingua report runs/demo-adapter-families-2022 --bandwidth 100"))
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    keep: Annotated[
        Path | None, typer.Option(help="Also add the run to runs.jsonl here, small and without paths, and write its table.")
    ] = None,
    bandwidth: Annotated[
        float, typer.Option(metavar="MBPS", help="The server's line in Mbit/s, shared by all sites, for the cost of a round.")
    ] = 1000.0,
) -> Answer:
    """Write report.html anew and print the table of scores."""
    from fedlingua.common.files import check_folder_to_write
    from fedlingua.desk.report import keep_run, score_table, write_report

    if keep:
        check_folder_to_write(keep, "--keep")
    page = write_report(run, bandwidth)
    told = console()
    told.print(score_table(run))
    told.print(f"report: {page}", soft_wrap=True)
    if keep:
        keep_run(run, keep)
    return {"report": page, "kept": keep}


@app.command(epilog=example("fedlingua status runs/demo-adapter-families-2022 --format json"))
def status(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
) -> Answer:
    """Show how far a run is: each site's round, when it was last heard, its bytes and failures."""
    from fedlingua.desk.cli.status import show_status

    return show_status(run, console())


@app.command(epilog=example("fedlingua watch runs/demo-adapter-families-2022 --once"))
def watch(
    run: Annotated[Path, typer.Argument(help="Run folder, also one that lies on a shared disk.")],
    once: Annotated[bool, typer.Option("--once", help="Show how it stands, and no more.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the folder where it is not there yet.")] = False,
    silence: Annotated[
        float, typer.Option(metavar="S", help="Seconds without a word after which a run that no server holds is broken off.")
    ] = 60.0,
) -> Answer:
    """Watch a run, whoever runs it, until it ends: rounds, losses, every site, what was sent, what went wrong."""
    from fedlingua.desk.cli.watch import watch_run

    return watch_run(run, once, wait, silence, console())


@app.command(epilog=example("fedlingua track runs/demo-adapter-families-2022 --to tensorboard"))
def track(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[str, typer.Option(help="tensorboard, mlflow, trackio, with commas; default: what the run names.")] = "",
) -> Answer:
    """Tell experiment trackers of a run what they have not been told yet: after the fact, or after a tracker could not be reached."""
    from fedlingua.desk.cli.track import track_run

    return track_run(run, to, console())


@app.command(epilog=example("fedlingua doctor"))
def doctor() -> Answer:
    """Look whether this machine has what runs need: versions, GPU, memory, disk, Flower, ports, extras; no network, nothing is changed."""
    from fedlingua.desk.cli.doctor import examine

    return examine(console())


@app.command(epilog=example("fedlingua bundle --to fedlingua.fab"))
def bundle(to: Annotated[Path | None, typer.Option(help="Also write the bundle to this file.")] = None) -> Answer:
    """Show the hash of the bundle that this checkout's runs carry, which a site approves."""
    from fedlingua.common.files import APP_DIR, check_file_to_write
    from fedlingua.consent.bundle import bundle_hash
    from fedlingua.desk.deployment.build import build_bundle

    if to:
        check_file_to_write(to, "--to")
    content = build_bundle(APP_DIR)
    if to:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
    found = bundle_hash(content)
    console().print(found, highlight=False, soft_wrap=True)
    return {"bundle": found, "file": to}


def main() -> None:
    """Entry point."""
    run_commands(app, sys.argv[1:])
