"""`fedlingua site`: set up a site, check it, approve what runs there, join a server, read its log, and use its model."""

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option, confirm, prompt

from fedlingua.common.errors import ConfigError, DeploymentError, RunError
from fedlingua.common.files import APP_DIR, replace_text
from fedlingua.common.languages import parse_written
from fedlingua.common.terminal import one_line
from fedlingua.consent.audit import read_head
from fedlingua.consent.bundle import approvals, approved, bundle_hash
from fedlingua.consent.keys import key_fingerprint
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import SiteFile, host_and_port, read_site_file
from fedlingua.corpora.overlap import key_check
from fedlingua.corpora.sites import read_federation
from fedlingua.desk import units
from fedlingua.desk.cli.completion import toml_files
from fedlingua.desk.cli.export import take_away
from fedlingua.desk.cli.options import ExportOptions, TranslateOptions
from fedlingua.desk.cli.output import Answer, Commands, example, say, show_result
from fedlingua.desk.deployment.audited import verify
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.gate import APPROVALS, REFUSED, write_programs
from fedlingua.desk.deployment.invitation import FILE as INVITATION
from fedlingua.desk.deployment.invitation import take_up
from fedlingua.desk.deployment.programs import believed_there, supernode_command
from fedlingua.desk.deployment.proxies import way_to
from fedlingua.desk.deployment.run_words import private_words
from fedlingua.desk.deployment.service import Service
from fedlingua.desk.deployment.site_setup import FILE, approve, init_site
from fedlingua.desk.deployment.worker import SOCKET, worker_of
from fedlingua.desk.experiment import given_settings, read_experiment
from fedlingua.desk.outline_of_run import Outline
from fedlingua.desk.processes import flower_environment, free_port
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.desk.translating.translator import Translator
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import EXPERIMENT

commands = Commands(group=True)
SiteArgument = Annotated[Path, Argument(help="The site's folder, or its site.toml.")]
SiteOption = Annotated[Path, Option("--site", help="The site's folder, or its site.toml.")]
NodeSite = Annotated[str | None, Option("--name", help="The site, if the node hosts several.")]
Delivery = Annotated[str | None, Option("--run", help="Run id; default: the newest run that delivered a model.")]
AGAIN_S, FORGOTTEN_S = 10.0, 90.0
"""Seconds between two attempts to join, and from the first to the last; Flower forgets a SuperNode after two heartbeats of 30 s."""
INSECURE = "warning: insecure = true: what this site sends can be read and changed on its way"


@commands.command(
    "init",
    epilog=example("fedlingua site init --name hospital --direction de-fr --tsv de-fr.tsv.gz"),
)
def site_init(
    name: Annotated[str, Option(prompt="The site's name", help="The site's name.")],
    direction: Annotated[
        str,
        Option(
            prompt="Direction, such as de-fr, or a language",
            help="Source and target, such as de-fr; or one language, such as es, for text that is not translated.",
        ),
    ],
    server: Annotated[str, Option(help="host:port of the server's fleet API; default: the one in its invitation.")] = "",
    to: Annotated[Path, Option(help="The site's folder.")] = Path("site"),
    tsv: Annotated[Path | None, Option(help="Corpus: a file with two columns.")] = None,
    tmx: Annotated[Path | None, Option(help="Corpus: a translation memory.")] = None,
    moses: Annotated[str | None, Option(help="Corpus: the stem of two files, X for X.de and X.fr.")] = None,
    lines: Annotated[Path | None, Option(help="Corpus in one language: a file with one document on each line.")] = None,
    jsonl: Annotated[
        Path | None,
        Option(help="Corpus: a JSON object a line, with a document in `text` or a pair in two fields, such as {de, fr}."),
    ] = None,
    notes: Annotated[Path | None, Option(help="Corpus in one language: a folder of .txt files, one a document.")] = None,
    deidentify_with: Annotated[
        str | None, Option(help="Function that de-identifies every document: package.module:function.")
    ] = None,
    phrasebook: Annotated[str | None, Option(help="Corpus for a trial: a register of the demo grammar.")] = None,
    sentences: Annotated[int | None, Option(help="With --phrasebook: number of sentences.")] = None,
    authority: Annotated[Path | None, Option(help="The server's ca.crt; default: the one in its invitation.")] = None,
    insecure: Annotated[bool, Option("--insecure", help="No TLS and no key; only for a trial on one machine.")] = False,
) -> Answer:
    """Make the site's folder, with site.toml, its key, and a file for the server's operator."""
    files = {"tsv": tsv, "tmx": tmx, "lines": lines, "jsonl": jsonl, "notes": notes}
    corpus = {key: path and str(path) for key, path in files.items()} | {"moses": moses, "phrasebook": phrasebook}
    if not any(corpus.values()) and sys.stdin.isatty():
        translates = not parse_written(direction).is_one_language
        wanted = "a file with two columns, source and target" if translates else "a file with a document a line"
        corpus["tsv" if translates else "lines"] = prompt(f"Corpus: {wanted}")
    if (bool(server), bool(authority), insecure) not in ((False, False, False), (True, True, False), (True, False, True)):
        raise BadParameter(
            "--server goes with --authority, the server's ca.crt, or with --insecure, for a trial on one machine; give none of them if the "
            "server's invitation is to bring them"
        )
    asked = {**corpus, "sentences": sentences, "deidentify-with": deidentify_with}
    given = {key: value for key, value in asked.items() if value is not None}
    site, join_file = init_site(to, name, direction, given, server, authority)
    say(f"site: {site.path}")
    say(f"send to the server's operator: {join_file}")
    if not server:
        say(f"save the invitation that the operator sends as {to / INVITATION}; then: fedlingua site start {to}")
    if site.insecure:
        say(INSECURE, style="bold red")
    return {"site": site.path, "join_file": join_file}


@commands.command("check", epilog=example("fedlingua site check site --federation federation.toml"))
def site_check(
    file: SiteArgument = Path("site"),
    experiment: Annotated[
        Path | None,
        Option(help="The run's experiment file; default: the demo's settings.", shell_complete=toml_files(EXPERIMENT)),
    ] = None,
    federation: Annotated[Path | None, Option(help="The server's federation file.")] = None,
    expect: Annotated[str, Option(help="The server's fingerprint, or the beginning of it.")] = "",
    knock: Annotated[bool, Option(help="Also connect to the server for a moment.")] = True,
    measure: Annotated[bool, Option("--measure", help="Also load the backbone and measure its dev loss.")] = False,
) -> Answer:
    """Check that the site is ready: corpora, backbone, memory, disk, certificate and key. Lists everything it may send."""
    site, invitation = take_up(_site(file))
    if invitation and not (experiment or federation):
        experiment, federation = invitation.experiment, invitation.federation
    from fedlingua.consent.approval import sends

    settings, checks, built = _check(site, experiment, federation, expect, knock, measure)
    notes = approvals(site.approvals)
    answer: dict[str, Any] = {"checks": checks, "approved": sorted(notes)}
    say(f"      approved: {f'{len(notes)} in {site.approvals}' if notes else 'none yet'}")
    for hashed, note in notes.items():
        say(f"  - {hashed[:12]}  {one_line(note)}")
    say("all that this site will ever send under these settings:")
    answer["sends"] = sends(settings, built[0].tensor_set if built else None)
    for words in answer["sends"].values():
        say(f"  - {words}")
    say("  - an error's reason; where it could quote text, its type alone")
    answer["server_sees"] = server_sees(settings)
    for words in answer["server_sees"]:
        say(words)
    _refuse_faults(checks, answer)
    return answer


def _check(
    site: SiteFile, experiment: Path | None, federation: Path | None, expect: str = "", knock: bool = False, measure: bool = False
) -> tuple[Settings, list[dict[str, Any]], list[Outline]]:
    """Show the result of every check; return a run's settings here, the results, and the backbone if it is good."""
    from fedlingua.desk.deployment.checks import check_site
    from fedlingua.desk.students.fetch import have_student

    settings = site.here(read_experiment(experiment, {}, deployed=True) if experiment else settings_from(default_run_config()))
    have_student(settings.backbone, say)
    known, built = read_federation(federation, Path()) if federation else None, list[Outline]()
    checks = [show_result(result) for result in check_site(site, settings, known, expect, knock, built, measure)]
    return settings, checks, built


def _refuse_faults(checks: Sequence[Mapping[str, Any]], answer: Answer = None) -> None:
    if faults := sum(not each["good"] for each in checks):
        raise DeploymentError(f"{faults} of the checks above failed; the site is not ready", answer=answer)


@commands.command(
    "approve", epilog=example("fedlingua site approve --experiment experiments/deployment/demo.toml --federation federation.toml")
)
def site_approve(
    bundle: Annotated[str | None, Argument(help="The bundle's hash; default: the one that this checkout makes.")] = None,
    file: SiteOption = Path("site"),
    experiment: Annotated[
        Path | None,
        Option(help="The run's experiment file: its settings are approved too.", shell_complete=toml_files(EXPERIMENT)),
    ] = None,
    federation: Annotated[Path | None, Option(help="The server's federation file, with the text rules.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Override a key as the server does: KEY=VALUE; repeatable.")] = None,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Approve a bundle and, with --experiment, its settings, which are shown in words first."""
    if experiment and not federation:
        raise BadParameter("--experiment needs --federation, the server's file, which says how text is split")
    if not experiment and (federation or set_):
        raise BadParameter("--federation and --set belong to a run's settings; give its --experiment, too")
    site, invitation = take_up(_site(file))
    if invitation and not (bundle or experiment):
        experiment, federation = invitation.experiment, invitation.federation
    return _approve(site, bundle, experiment, federation, set_ or (), yes)


def _approve(
    site: SiteFile, bundle: str | None, experiment: Path | None, federation: Path | None, changes: Sequence[str], yes: bool
) -> dict[str, Any]:
    """Show what a run does and sends, ask for consent, and add the hashes to the site's list."""
    hashes = {"bundle": bundle or bundle_hash(build_bundle(APP_DIR))}
    notes = {"bundle": "given by its hash" if bundle else f"made of {APP_DIR}"}
    if experiment and federation:
        from fedlingua.consent.approval import approval_hash, sends
        from fedlingua.corpora.texts import read_text
        from fedlingua.desk.deployment.run_words import in_words, steps_in_words
        from fedlingua.desk.outline_of_run import outline_of

        settings = read_experiment(experiment, given_settings(changes), deployed=True)
        read = read_federation(federation, Path())
        rules = read.rules
        here = site.here(settings)
        steps, sent = steps_in_words(read_text(site.sites, rules), here), sends(settings, outline_of(here).tensor_set)
        for words in [*in_words(settings, rules, here), *steps, *sent.values(), *server_sees(settings)]:
            say(f"  - {words}")
        keyless = [each.name for each in read.sites if not each.public_key]
        if settings.sums_securely and not (keyless and site.insecure):
            from fedlingua.privacy.roster import members_hash

            if keyless:
                raise ConfigError(
                    f"{federation}: secure sums need the node key of every site; {', '.join(keyless)} has no public-key there: "
                    "ask the server's operator for the file with all of them"
                )
            for each in read.sites:
                key = key_fingerprint(each.public_key)
                say(f"  - secure sums with {each.name}, key {key}; compare it with what its owner says")
            hashes["roster"] = members_hash({each.name: each.public_key for each in read.sites})
            notes["roster"] = f"{federation.name}, {', '.join(each.name for each in read.sites)}"
        if not yes:
            confirm("May this run here?", abort=True, err=True)
        hashes["run"] = approval_hash(hashes["bundle"], settings, rules)
        given = " --set ".join([experiment.name, *changes])
        does = f"{settings.method}, {settings.rounds} rounds, privacy.sum = {settings.privacy_sum}"
        notes["run"] = f"{given}, {does}, under bundle {hashes['bundle'][:12]}"
    new = [approve(site.approvals, hashed, one_line(f"{what}: {notes[what]}")) for what, hashed in hashes.items()]
    listed = ", ".join(f"{what} {hashed}" for what, hashed in hashes.items())
    say(f"{listed}: approved{'' if any(new) else ' already'} in {site.approvals}")
    if "run" not in hashes and site.limits.settings == "approved":
        say("under it runs what is approved, too: --experiment FILE --federation FILE")
    return {**hashes, "new": any(new)}


@commands.command("log", epilog=example("fedlingua site log site --last 20"))
def site_log(
    file: SiteArgument = Path("site"),
    last: Annotated[int, Option(min=1, help="How many of the newest lines to show.")] = 50,
) -> Answer:
    """Show what the server asked and what left this site, and verify the log. The exit code is 1 if the log was changed."""
    state = _site(file).state
    lines, broken = verify(state)
    # A description comes before a request that names its run; a refused one may be all of its Flower run.
    runs = {line.get("flower_run"): f"run {line['run']}" for line in lines if line.get("run")}
    heading = None
    for line in lines[-last:]:
        flower_run = line.get("flower_run")
        of = f"run {line['run']}" if line.get("run") else runs.get(flower_run, f"Flower run {flower_run}")
        if of != heading and not line.get("broken_off"):
            say(one_line(of), style="bold")
            heading = of
        say(f"{line['line']:>5}  {str(line.get('time', ''))[:19].replace('T', ' ')}  {one_line(_in_words(line))}")
    answer: dict[str, Any] = {"lines": lines[-last:], "number": len(lines), "last": None, "broken": broken or None}
    if broken:
        raise DeploymentError(f"the audit log in {state}: {broken}", answer=answer)
    answer["last"] = read_head(state)["hash"]
    say(f"{len(lines)} lines, whole; hash of the last, to be noted elsewhere: {answer['last']}")
    return answer


def _in_words(line: Mapping[str, Any]) -> str:
    """Describe a line of the audit log: which site was asked, for what, and what left the site."""
    if line.get("broken_off"):
        return "was broken off, as by a power cut; the chain of hashes goes on over it"
    asked = [str(line.get("site", "")), f"round {line['round']}" if line.get("round") else "", str(line.get("asked", ""))]
    request = ", ".join(filter(None, asked))
    if line.get("refused"):
        return f"{request}: refused: {line['refused']}"
    sentences = ", ".join(f"{count} {split} sentences" for split, count in dict(line.get("sentences") or {}).items() if count)
    tensors = f"{line['tensors']} tensors" if line.get("tensors") else "no tensors"
    again = " (answered before)" if line.get("repeated") else ""
    spent = f"; epsilon {line['epsilon']:.3g} given away in all" if line.get("epsilon") else ""
    return f"{request}: {', '.join(filter(None, [sentences, tensors]))}; {units.data(line.get('bytes', 0))} sent{again}{spent}"


@commands.command("overlap-key", epilog=example("fedlingua site overlap-key keys/overlap.key"))
def site_overlap_key(
    file: Annotated[Path, Argument(help="File to write; with --show, the file to read.")] = Path("overlap.key"),
    show: Annotated[bool, Option("--show", help="Make no key; show the digits that identify this one.")] = False,
) -> Answer:
    """Make the key that a federation's sites share when a run compares their text (overlap). Keep it from the server."""
    key = read_overlap_key(file) if show else make_overlap_key(file)
    say(f"overlap key: {file}, check {key_check(key)}")
    if not show:
        say("give it to the other sites, never to the server, on a way that only they can read")
        say("each names it in its site.toml: [node] overlap-key")
    return {"file": file, "check": key_check(key)}


@commands.command("start", epilog=example("fedlingua site start site"))
def site_start(file: SiteArgument = Path("site")) -> Answer:
    """Run the SuperNode until Ctrl-C or SIGTERM. It refuses bundles that the site has not approved.

    If the site's folder holds an invitation that is not approved yet, the site is checked first, and its owner asked for consent.
    A SuperLink refuses a key that it considers online, and considers it online for a minute after a SuperNode was killed. The SuperNode
    is therefore restarted until that minute is over. On Linux, forks of a worker with all libraries loaded carry out messages, and the last
    one keeps the model for the next; a worker that ends is restarted, and meanwhile messages start programs of their own.
    """
    site, invitation = take_up(_site(file))
    if site.insecure:
        say(INSECURE, style="bold red")
    if invitation and invitation.run not in approved(site.approvals):
        files = invitation.experiment, invitation.federation
        _refuse_faults(_check(site, *files)[1])
        say("what the server invites this site to:")
        _approve(site, None, *files, changes=(), yes=False)
    if not approved(site.approvals):
        say("no bundle is approved yet, so every run is refused; see `fedlingua site approve`")
    os.umask(0o077)  # the site's files, text among them, are for their owner alone
    programs = site.home / "programs"
    environment = flower_environment(site.home)
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
    environment |= {APPROVALS: str(site.approvals), REFUSED: str(site.state / "bundles")}
    ends = time.monotonic() + FORGOTTEN_S
    running = "this site is already running here; end the other `fedlingua site start` first"
    with RunFolder(site.state).held(running), worker_of(environment, site.home, site.idle_minutes) as worker:
        node = Service(
            "the SuperNode", supernode_command(site, free_port()), environment, site.home, listen=True, locked=site.state
        )
        node.end_earlier()
        write_programs(programs, Path(worker.environment[SOCKET]) if worker else None, environment["PATH"])
        with node as supernode:
            way = way_to(host_and_port(site.address, "address =")[0])
            say(f"site {', '.join(each.name for each in site.sites)} joins {site.address}{way.words}")
            while not supernode.stopped.wait(1.0):
                if worker and worker.ended:  # messages start programs of their own until it answers again
                    worker.start()
                if not supernode.ended:
                    continue
                if not believed_there(supernode.printed()) or time.monotonic() > ends:
                    supernode.check()
                say(
                    f"{site.address} believes that this site is there already, as it does for a minute after one that ended without a "
                    f"farewell; trying again in {AGAIN_S:g} s"
                )
                if not supernode.stopped.wait(AGAIN_S):
                    supernode.start()
    say("site stopped")
    return {"site": site.path, "status": "stopped"}


@commands.command("translate", epilog=example("fedlingua site translate --site site letter.txt"))
def site_translate(how: TranslateOptions, file: SiteOption = Path("site"), name: NodeSite = None, run: Delivery = None) -> Answer:
    """Translate text line by line with the model delivered to this site. Needs no server."""
    from fedlingua.desk.cli.translate import check_text, translate_with

    check_text(how)
    how.check()
    return translate_with(Translator(TrainedModel.of_delivery(_newest(_site(file), name, run)), how), how, sys.stdout)


@commands.command("export", epilog=example("fedlingua site export --site site --to hospital-model"))
def site_export(how: ExportOptions, file: SiteOption = Path("site"), name: NodeSite = None, run: Delivery = None) -> Answer:
    """Export the model delivered to this site, with its model card. Needs no server."""
    how.check()
    site = _site(file)
    model = TrainedModel.of_delivery(_newest(site, name, run))
    names = {str(path): name for name, path in site.backbones.items()}
    return take_away(model, how, backbone=names.get(model.settings.backbone, ""))


def _newest(site: SiteFile, site_name: str | None, run: str | None) -> Path:
    """Return the folder of the model that was delivered last, or by `run`."""
    names = [each.name for each in site.sites]
    name = site_name or (names[0] if len(names) == 1 else "")
    if name not in names:
        not_for = f", not for {name!r}" if name else ""
        raise ConfigError(f"this node speaks for {', '.join(names)}{not_for}; name one of its sites with --name")
    if run:
        return site.run_directory(run, name)
    delivered = list((site.state / "runs").glob(f"*/{name}/delivered.json"))
    if not delivered:
        raise RunError(f"{site.state}: nothing was delivered to {name} yet; a run delivers at its end")
    return max(delivered, key=lambda file: file.stat().st_mtime).parent


def _site(file: Path) -> SiteFile:
    if not file.exists():
        raise ConfigError(f"{file}: there is no such site; give its folder or its site.toml, which `fedlingua site init` makes")
    return read_site_file(file / FILE if file.is_dir() else file)


def server_sees(settings: Settings) -> tuple[str, str]:
    """Return what the server sees of a site under these settings, and what it does not see, in words."""
    hidden = "the server does not see: sentences, translations, models that are trained after the last round"
    if not settings.how.travels:
        return "the server sees of this site: its sizes, losses and scores", f"{hidden}, any tensor"
    if not settings.sums_securely:
        read = private_words(settings) if settings.trains_privately else "parts of the training text can be read from an update"
        seen = f"its update of every round, as sent; its sizes, losses and scores; {read}"
        return f"the server sees of this site: {seen}", hidden
    least = settings.privacy_min_cluster
    also = "" if settings.sums_scores else "its loss on dev and its scores; "
    not_own = ", its loss on dev, its scores" if settings.sums_scores else ""
    seen = f"that it takes part; {also}of its update only the sum with those of {least - 1} or more other sites"
    return f"the server sees of this site: {seen}", f"{hidden}, this site's own update, the loss of its training{not_own}"


def make_overlap_key(file: Path) -> bytes:
    """Write a new key, which only the file's owner can read, and return it; raise ConfigError if the file already exists."""
    if file.exists():
        raise ConfigError(f"{file} already exists, and other sites may have it too; give another file, or move it away")
    key = secrets.token_bytes(32)
    text = f"# For the sites of the federation, the same at each. Whoever has it can try sentences, so not for the server.\n{key.hex()}\n"
    replace_text(file, text, 0o600)
    return key
