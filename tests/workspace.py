"""A user's folder with runs, experiments and corpora as small as can be, and the real command line at work in it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from tests.recorded import SUITE, record_completed, record_round

ROOT = Path(__file__).parents[1]
COMMAND = "import sys; sys.argv[0] = 'fedlingua'; from fedlingua.desk.cli.app import main; main()"
SLOW = {"torch", "transformers", "ray", "flwr", "datasets", "sklearn", "scipy", "pandas"}
"""Libraries that take a second or more to load; what can be said without them is said before they are."""
FEDERATION = """\
name = "two"
[[site]]
name = "hospital"
direction = "de-fr"
tsv = "de-fr.tsv"
[[site]]
name = "court"
direction = "pl-es"
tsv = "pl-es.tsv"
"""
CASES = ["nominative", "genitive", "dative", "accusative", "vocative"]
RECIPE = """\
name = "small"
[training]
steps = 2
[[corpus]]
direction = "de-fr"
tsv = "de-fr.tsv"
"""


@dataclass(frozen=True)
class Answered:
    """What a command line came to. imported: the libraries that it loaded on its way, which is what it costs on any machine."""

    code: int
    out: str
    err: str
    imported: frozenset[str] = frozenset()

    @property
    def told(self) -> str:
        """All of it, in one line, without a frame around usage errors."""
        return " ".join("".join(" " if "\u2500" <= sign <= "\u257f" else sign for sign in self.out + self.err).split())


def fedlingua(arguments: Sequence[str], folder: Path, **environment: str) -> Answered:
    """Run a command line in `folder`, whose `home` is the user's, and whose `missing`, if it is there, comes before all libraries."""
    home = folder / "home"
    paths = [*([str(folder / "missing")] if (folder / "missing").is_dir() else []), str(ROOT / "src"), str(ROOT)]
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(paths),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "COLUMNS": "400",
        "OMP_NUM_THREADS": "1",
        "TERM": "dumb",
        **environment,
    }
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", COMMAND, *arguments],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:  # something was begun after all; Ctrl-C ends all of it
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        raise
    lines = err.splitlines(keepends=True)
    imports = [line for line in lines if line.startswith("import time:")]
    libraries = frozenset(line.rpartition("|")[2].strip().partition(".")[0] for line in imports)
    return Answered(process.returncode, out, "".join(line for line in lines if line not in imports), libraries)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder: path -> size and time of its last change; folders are 0 long. Locks and what Python
    keeps for itself say nothing and are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".lock") or "__pycache__" in path.parts:
            continue
        seen = path.lstat()
        found[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (seen.st_size, seen.st_mtime_ns)
    return found


def make_workspace(folder: Path) -> Path:
    """Corpora, a federation of two sites, an experiment, a suite, a recipe, and runs in every state; returns the folder.

    runs/done: completed, with scores, translations and no checkpoint. runs/other: the same with other test text. runs/killed: its server
    is gone, after round 1. runs/unscored: completed without scores.json. runs/cut: its run.json broken off. runs/old: of another version;
    runs/stopped: of another version, and interrupted.
    runs/empty: a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir()
    corpus = [(f"der {n} Fall ist {case}", f"le cas {n} est {case}") for n, case in enumerate(CASES * 12)]
    for name in ("de-fr", "pl-es"):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in corpus))
    (folder / "federation.toml").write_text(FEDERATION)
    here = f'federation = "{folder / "federation.toml"}"\n'
    (folder / "small.toml").write_text(f"{here}rounds = 2\n")
    (folder / "suite.toml").write_text(SUITE.format(federation=folder / "federation.toml"))
    (folder / "recipe.toml").write_text(RECIPE)
    config = {
        **default_run_config(),
        "keep.choose": False,
        "send.code": "none",
        "federation": str(folder / "federation.toml"),
        "data-dir": str(folder),
        "rounds": 2,
    }
    for name in ("done", "other"):
        settings = settings_from({**config, "run-dir": str(folder / "runs" / name)})
        record_completed(settings)
        _translated(folder / "runs" / name, f"ein {name}")
    killed = settings_from({**config, "run-dir": str(folder / "runs" / "killed")})
    RunFolder(Path(killed.run_dir)).open(killed, 1)
    record_round(RunFolder(Path(killed.run_dir)), 0, 1.0)
    for name, changed in (("unscored", "scores.json"), ("cut", "run.json"), ("old", "run.json"), ("stopped", "run.json")):
        shutil.copytree(folder / "runs" / "done", folder / "runs" / name)
        file = folder / "runs" / name / changed
        if name == "unscored":
            file.unlink()
        elif name == "cut":
            file.write_text(file.read_text()[:100])
        else:
            run = json.loads(file.read_text())
            run["status"] = "completed" if name == "old" else "interrupted"
            run["config"] = {key: value for key, value in run["config"].items() if key != "beam"} | {"beams": 5}
            file.write_text(json.dumps(run))
    (folder / "runs" / "empty").mkdir()
    return folder


def _translated(run: Path, source: str) -> None:
    """Sites, clusters and translations as a simulation leaves them: one sentence of hospital, three of court."""
    sites = {"hospital": ("de-fr", 1), "court": ("pl-es", 3)}
    folder = RunFolder(run)
    folder.write("sites.json", {name: {"members": {name: direction}} for name, (direction, _) in sites.items()})
    folder.write("clusters.json", {part: {"all": list(sites)} for part in ("encoder", "decoder", "shared")})
    for name, (_, sentences) in sites.items():
        (run / "sites" / name).mkdir(parents=True)
        lines = [f"{source} Satz {n}\tune phrase {n}\tun mot {n}\tune phrase {n}\n" for n in range(sentences)]
        (run / "sites" / name / "translations.tsv").write_text("source\treference\tbase\thypothesis\n" + "".join(lines))
