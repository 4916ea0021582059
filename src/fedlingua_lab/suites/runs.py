"""The runs of a suite, their folders and states. Equal configurations share a run."""

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedlingua.backbones.convert import files_hash
from fedlingua.backbones.directories import BUILT_IN
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR, json_hash, sha256
from fedlingua.corpora.recipe import forbidden_sides
from fedlingua.corpora.registers import Register
from fedlingua.corpora.sites import Federation, Site
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.check_settings import check_settings
from fedlingua.desk.experiment import read_run_federation
from fedlingua.desk.pretraining.recipe import read_recipe
from fedlingua.runs.folder import RunFolder, check_resumable
from fedlingua.settings.config import MAY_CHANGE, Settings
from fedlingua.settings.experiment import config_of_run
from fedlingua_demo import phrasebook
from fedlingua_lab.suites.read import Row, Suite, check_figures, naming_row

Standing = Literal["completed", "broken off", "new"]
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*-\d+-[0-9a-f]{12}")


@dataclass(frozen=True)
class Run:
    """One row with one seed. settings: With that seed. folder: The run folder, which other rows or suites may share."""

    row: Row
    seed: int
    settings: Settings
    federation: Federation
    folder: Path

    @property
    def name(self) -> str:
        """The run's name in the suite's result."""
        return f"{self.row.name}-{self.seed}"

    @property
    def title(self) -> str:
        return f"{self.row.name}, seed {self.seed}"


def plan(suite: Suite, runs_dir: Path) -> list[Run]:
    """Return a suite's runs, row by row. Rows that could not be run to the end or not be compared are refused by name."""
    federations, settings_of = dict[str, Federation](), dict[str, Settings]()
    for row in suite.rows:
        with naming_row(suite.file.name, row.name):
            settings, federation = read_run_federation(row.settings, suite.file)
            federations[row.name], settings_of[row.name] = federation, settings
            if federation.base and not federation.base.is_file():
                raise ConfigError(f"base = {federation.base}: there is no such recipe")
            check_settings(settings, federation)
    check_figures(suite, federations.values())
    for name in {row.settings.federation: row.name for row in suite.rows}.values():
        federation, data = federations[name], Path(settings_of[name].data_dir)
        read_sites(federation, forbidden_sides(read_recipe(federation.base, data)) if federation.base else frozenset())
    planned = []
    for row in suite.rows:
        federation = federations[row.name]
        content = content_hash(row.settings, federation)
        for seed in row.seeds:
            settings = replace(settings_of[row.name], seed=seed)
            # The hash covers all that can change a run's result, except the app's code, libraries and files of a backbone not built in.
            name = f"{settings.method}-{seed}-{json_hash([settings.hash(), content])[:12]}"
            planned.append(Run(row, seed, settings, federation, runs_dir / name))
    return planned


def content_hash(settings: Settings, federation: Federation) -> str:
    """Hash the federation file, corpora, backbone and own code that settings name. Corpora, which may be large, go by name and size."""
    shipped = BUILT_IN[settings.backbone].directory if settings.backbone in BUILT_IN else None
    about = {
        "federation": sha256(settings.federation_path),
        "base": sha256(federation.base) if federation.base else "",
        "corpora": [_corpus(site) for site in federation.sites],
        "backbone": files_hash(sorted(shipped.iterdir())) if shipped else [settings.backbone, settings.backbone_revision],
    }
    own = {file.name: sha256(file) for file in own_files(settings)}
    return json_hash({**about, "own": own} if own else about)


def own_files(settings: Settings) -> list[Path]:
    """Return the files beside pyproject.toml that `strategy`, `client` and `layers` name, and those there whose names occur in these."""
    own, files = (settings.strategy, settings.client, *settings.own_layers), dict[Path, None]()
    names = [named.partition(":")[0] for named in own]
    for name in names:  # which grow meanwhile
        if (file := APP_DIR / f"{name}.py").is_file() and file not in files:
            files[file] = None
            names += set(re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace")))
    return sorted(files)


def _corpus(site: Site) -> list[str | int]:
    if isinstance(site.corpus, Register):
        return [phrasebook.grammar_hash()]
    paths = site.corpus.paths() if site.corpus else []
    return [part for path in paths if isinstance(path, Path) for part in (path.name, path.stat().st_size)]


def standing(run: Run) -> Standing:
    """Return a run's state: completed; broken off after at least one complete round; or new, so that it has to begin at the start."""
    folder = RunFolder(run.folder)
    content = folder.read("run.json")
    if content and content.get("status") == "completed" and (run.folder / "scores.json").is_file():
        return "completed"
    try:
        check_resumable(run.folder, content)
    except RunError:
        return "new"
    assert content is not None
    fixed = {key: value for key, value in run.settings.flat().items() if key not in MAY_CHANGE}
    same = {key: value for key, value in config_of_run(content["config"]).items() if key not in MAY_CHANGE} == fixed
    return "broken off" if same and folder.checkpoints.rounds() else "new"


def make_ready(run: Run) -> Settings:
    """Prepare a run's folder and return the settings that resume the run or, in a cleared folder, start its first attempt.

    Raises:
        RunError: Another server is using the folder.
    """
    settings = replace(run.settings, run_dir=str(run.folder))
    with RunFolder(run.folder).held():
        if standing(run) == "broken off":
            return replace(settings, resume=True)
        assert RUN_NAME.fullmatch(run.folder.name), run.folder  # never delete a folder that no suite has named
        shutil.rmtree(run.folder)
    return settings
