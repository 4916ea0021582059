"""`fedlingua site`: set one up, check it, approve what runs there, join, look at its log."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedlingua.common.errors import ConfigError, DeploymentError, RunError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import flower_environment, free_port
from fedlingua.consent.audit import read_head, verify
from fedlingua.consent.bundle import approve as approve_hash
from fedlingua.consent.bundle import approved, bundle_hash
from fedlingua.consent.overlap_key import make_overlap_key, read_overlap_key
from fedlingua.consent.site_file import SiteFile, read_site_file
from fedlingua.corpora.overlap import key_check
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.findings import show_finding
from fedlingua.desk.cli.output import Answer
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.gate import APPROVALS, REFUSED, write_programs
from fedlingua.desk.deployment.programs import believed_there, refused_bundles, supernode_command
from fedlingua.desk.deployment.service import Service
from fedlingua.desk.deployment.site_setup import FILE, init_site
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config, given_settings, read_experiment

if TYPE_CHECKING:
    from fedlingua.desk.cli.translate import Asked

AGAIN_S, FORGOTTEN_S = 10.0, 90.0
"""Between two tries to join, and from the first until the last; Flower forgets a SuperNode after two heartbeats of 30 s."""


def init(
    directory: Path, name: str, direction: str, corpus: Mapping[str, Any], address: str, authority: Path | None, console: Console
) -> dict[str, Any]:
    """Make a site's folder and say what comes next."""
    site, join_file = init_site(directory, name, direction, corpus, address, authority)
    console.print(f"site: {site.path}", soft_wrap=True, highlight=False)
    console.print(f"send to the server's operator: {join_file}", soft_wrap=True, highlight=False)
    if site.insecure:
        _warn(console)
    return {"site": site.path, "join_file": join_file}


def check(
    file: Path, experiment: Path | None, federation: Path | None, expected: str, knock: bool, console: Console
) -> dict[str, Any]:
    """Prove that this site can take part in a run, and list all that it will ever send.

    Raises:
        DeploymentError: something is not as it has to be; the lines before say what.
    """
    site = _site(file)
    settings = site.here(read_experiment(experiment, {}) if experiment else settings_from(default_run_config()))
    known = read_federation(federation, Path()) if federation else None
    # torch and transformers, which nothing else here needs, take seconds to load.
    from fedlingua.consent.approval import sends
    from fedlingua.desk.deployment.checks import check_site
    from fedlingua.exchange.trainable import build_trainable

    told: dict[str, Any] = {"checks": [], "approved": sorted(approved(site.approvals))}
    faults = 0
    for finding in check_site(site, settings, known, expected, knock):
        told["checks"].append(show_finding(finding, console))
        faults += not finding.good
    console.print(f"      approved: {', '.join(bundle[:12] for bundle in told['approved']) or 'none yet'}", highlight=False)
    console.print("all that this site will ever send under these settings:", highlight=False)
    trainable = None if faults else build_trainable(settings)
    told["sends"] = sends(settings, trainable)
    for words in told["sends"].values():
        console.print(f"  - {words}", soft_wrap=True, highlight=False)
    console.print("  - an error's reason; where it could quote text, its type alone", highlight=False)
    if faults:
        raise DeploymentError(f"{faults} of the checks above failed; the site is not ready", answer=told)
    return told


def approve(
    file: Path, bundle: str | None, run: tuple[Path, Path] | None, overrides: Sequence[str], agreed: bool, console: Console
) -> dict[str, Any]:
    """Let a bundle run here, the given one or the one that this checkout makes; and under it a run, once it has been shown and agreed to.

    run: its experiment file and the server's federation file, which says how text is split; overrides: key=value, of the experiment.

    Raises:
        ExchangeError: the site's own file refuses the settings.
    """
    site = _site(file)
    hashes = {"bundle": bundle or bundle_hash(build_bundle(APP_DIR))}
    if run:
        from fedlingua.consent.approval import approval_hash, in_words, sends
        from fedlingua.exchange.trainable import build_trainable

        settings, rules = read_experiment(run[0], given_settings(overrides)), read_federation(run[1], Path()).rules
        for words in [*in_words(settings, rules), *sends(settings, build_trainable(site.here(settings))).values()]:
            console.print(f"  - {words}", soft_wrap=True, highlight=False, markup=False)
        if not agreed:
            typer.confirm("May this run here?", abort=True, err=True)
        hashes["run"] = approval_hash(hashes["bundle"], settings, rules)
    new = [approve_hash(site.approvals, found, note) for note, found in hashes.items()]
    told = ", ".join(f"{note} {found}" for note, found in hashes.items())
    console.print(f"{told}: approved{'' if any(new) else ' already'} in {site.approvals}", soft_wrap=True, highlight=False)
    if not run and site.limits.settings == "approved":
        console.print("under it runs what is approved, too: --experiment FILE --federation FILE", soft_wrap=True, highlight=False)
    return {**hashes, "new": any(new)}


def show_log(file: Path, last: int, console: Console) -> dict[str, Any]:
    """Show the newest lines of the audit log, and follow its whole chain.

    Raises:
        DeploymentError: the chain is broken; names the first line that is.
    """
    state = _site(file).state
    lines, broken = verify(state)
    keys = ("line", "time", "run", "round", "site", "asked", "sentences", "tensors", "bytes", "refused")
    shown = Table(*keys)
    for line in lines[-last:]:
        words = (str(line.get(key, "")) for key in keys)
        shown.add_row(*("".join(c if c.isprintable() else "?" for c in escape(word)) for word in words))
    console.print(shown)
    answer = {"lines": lines[-last:], "number": len(lines), "last": read_head(state)["hash"], "broken": broken or None}
    if broken:
        raise DeploymentError(f"the audit log in {state}: {broken}", answer=answer)
    console.print(f"{len(lines)} lines, whole; hash of the last, to be noted elsewhere: {answer['last']}", soft_wrap=True)
    return answer


def overlap_key(file: Path, show: bool, console: Console) -> dict[str, Any]:
    """Make a key for all sites of a federation, or show the digits that tell one from another.

    Raises:
        ConfigError: the file is there already, or with `show` holds no key.
    """
    key = read_overlap_key(file) if show else make_overlap_key(file)
    console.print(f"overlap key: {file}, check {key_check(key)}", soft_wrap=True, highlight=False, markup=False)
    if not show:
        console.print("give it to the other sites, never to the server, on a way that only they can read", soft_wrap=True)
        console.print("each names it in its site.toml: [node] overlap-key", soft_wrap=True, highlight=False, markup=False)
    return {"file": file, "check": key_check(key)}


def start(file: Path, console: Console) -> dict[str, Any]:
    """Run the SuperNode until a signal ends it; bundles that are not approved are refused before they are unpacked.

    A SuperLink lets nobody join under a key that it believes to be there already, and it believes so for a minute after a SuperNode
    that was killed: the SuperNode is started again until that minute is over.

    Raises:
        DeploymentError: it cannot start, or ends by itself.
    """
    site = _site(file)
    if site.insecure:
        _warn(console)
    listed = approved(site.approvals)
    if not listed:
        console.print("no bundle is approved yet, so every run is refused; see `fedlingua site approve`", highlight=False)
    os.umask(0o077)  # what the site keeps, text among it, is for its owner alone
    programs = site.home / "programs"
    write_programs(programs)
    environment = flower_environment(site.home)
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
    environment |= {APPROVALS: str(site.approvals), REFUSED: str(refused_bundles(site))}
    names = ", ".join(one.name for one in site.sites)
    ends = time.monotonic() + FORGOTTEN_S
    with Service("the SuperNode", supernode_command(site, free_port()), environment, site.home, listen=True) as supernode:
        console.print(f"site {names} joins {site.address}", highlight=False, soft_wrap=True)
        while not supernode.stopped.wait(1.0):
            if not supernode.ended:
                continue
            if not believed_there(supernode.printed()) or time.monotonic() > ends:
                supernode.check()
            console.print(
                f"{site.address} believes that this site is there already, as it does for a minute after one that ended without a "
                f"farewell; trying again in {AGAIN_S:g} s",
                highlight=False,
                soft_wrap=True,
            )
            if not supernode.stopped.wait(AGAIN_S):
                supernode.start()
    console.print("site stopped", highlight=False)
    return {"site": site.path, "status": "stopped"}


def translate(file: Path, site_name: str | None, run: str | None, asked: "Asked") -> Answer:
    """Translate line for line with what the newest run (or `run`) has delivered to this site.

    Raises:
        ConfigError: several sites and none named. RunError: nothing was delivered.
    """
    from fedlingua.desk.cli.translate import translate_with
    from fedlingua.desk.models import TrainedModel
    from fedlingua.desk.translator import Translator

    asked.check()
    folder = _newest(_site(file), site_name, run)
    return translate_with(Translator(TrainedModel.of_delivery(folder), asked.decoding), asked, sys.stdout)


def export(
    file: Path, site_name: str | None, run: str | None, to: Path, form: str, quantization: str, force: bool, console: Console
) -> dict[str, Any]:
    """Export what the newest run (or `run`) has delivered to this site.

    Raises:
        ConfigError: several sites and none named, an unknown form, a folder that is not to be written. RunError: nothing was delivered.
    """
    from fedlingua.desk.cli.export import told_export
    from fedlingua.desk.export.forms import check_form, check_place
    from fedlingua.desk.models import TrainedModel

    check_form(form, quantization)
    check_place(to, force)
    site = _site(file)
    model = TrainedModel.of_delivery(_newest(site, site_name, run))
    from fedlingua.desk.export.model import export_model  # loads torch

    # What the run calls the backbone that lies here under a path.
    names = {str(path): name for name, path in site.backbones.items()}
    name = names.get(model.settings.backbone, "")
    return told_export(export_model(model, to, form, force=force, quantization=quantization, name=name), console)


def _newest(site: SiteFile, site_name: str | None, run: str | None) -> Path:
    """The folder of what was delivered last, or by `run`."""
    names = [one.name for one in site.sites]
    if site_name is None and len(names) > 1:
        raise ConfigError(f"this node speaks for {', '.join(names)}; name one with --name")
    name = site_name or names[0]
    folders = (
        [site.run_directory(run, name)]
        if run
        else [path.parent for path in (site.state / "runs").glob(f"*/{name}/delivered.json")]
    )
    if not folders:
        raise RunError(f"{site.state}: nothing was delivered to {name} yet; a run delivers at its end")
    return max(folders, key=lambda folder: (folder / "delivered.json").stat().st_mtime if len(folders) > 1 else 0)


def _site(file: Path) -> SiteFile:
    if not file.exists():
        raise ConfigError(f"{file}: there is no such site; give its folder or its site.toml, which `fedlingua site init` makes")
    return read_site_file(file / FILE if file.is_dir() else file)


def _warn(console: Console) -> None:
    console.print("warning: insecure = true: what this site sends can be read and changed on its way", style="bold red")
