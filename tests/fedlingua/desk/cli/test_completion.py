"""Shell completion, asked as shells ask: through the environment, of the real command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace import COMMAND, ROOT, SLOW, fedlingua, make_workspace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("completion") / "w")


CASES = [
    ("run sm", ["small.toml"], ["suite.toml", "federation.toml"]),
    ("suite s", ["suite.toml"], ["small.toml"]),
    ("pretrain ", ["recipe.toml"], ["small.toml"]),
    ("run small.toml --set learn", ["learning-rate="], ["rounds="]),
    ("run small.toml --profile sim", ["simulation", "simulation-gpu"], ["deployment"]),
    ("status ", ["runs/done", "runs/killed", "runs/empty/"], ["runs/"]),
    ("run --resume runs/k", ["runs/killed"], ["runs/done"]),
    ("compare runs/done runs/o", ["runs/old", "runs/other"], ["runs/done"]),
    ("translate --run runs/done --site ", ["hospital", "court"], ["done"]),
    ("score --run runs/done --metric ch", ["chrf", "chrf++"], ["bleu"]),
    ("corpus ov", ["overlap"], ["check"]),
    ("translate --di", ["--direction"], ["--run"]),
]


# Of both shells all goes the same way but for what is printed, so that of one of them a few are enough.
@pytest.mark.parametrize(
    ("shell", "typed", "wanted", "not_wanted"), [*(("bash", *case) for case in CASES), *(("zsh", *case) for case in CASES[:3])]
)
def test_what_is_typed_is_gone_on_with(shell: str, typed: str, wanted: list[str], not_wanted: list[str], folder: Path) -> None:
    line = f"fedlingua {typed}"
    answered = fedlingua(
        [],
        folder,
        _FEDLINGUA_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS=line,
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
    )
    candidates = answered.out.split("\n") if shell == "bash" else answered.out.split('"')
    assert set(wanted) <= set(candidates)
    assert not set(not_wanted) & set(candidates)
    assert not answered.imported & {*SLOW, "plotly"}


def test_values_of_a_key_are_gone_on_with(folder: Path) -> None:
    asked = {"_FEDLINGUA_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "fedlingua run --set method=adapter-f"}
    assert '"method=adapter-families"' in fedlingua([], folder, **asked).out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["run", "small.toml", "--set", "method", "=", "adapter-f"], {"adapter-fed", "adapter-families"}),
        (["run", "small.toml", "--set", "device", "="], {"cpu", "cuda"}),
        (["run", "small.toml", "--set", "rounds", "=", "3", "--set", "cluster.n"], {"cluster.number="}),
    ],
)
def test_bash_itself_is_offered_what_stands_behind_the_equals_sign(words: list[str], wanted: set[str], folder: Path) -> None:
    """As its own script asks, which it takes from `--show-completion`; bash splits words at equals signs."""
    program = folder / "fedlingua"
    program.write_text(f"#!{sys.executable}\n{COMMAND.replace('; ', chr(10))}\n")
    program.chmod(0o755)
    script = fedlingua([], folder, _FEDLINGUA_COMPLETE="source_bash").out
    array = " ".join(f"'{word}'" for word in ["fedlingua", *words])
    called = f'COMP_WORDS=({array})\nCOMP_CWORD={len(words)}\n_fedlingua_completion "{program}"'
    asking = f'{script}\n{called}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(folder / "home")}
    done = subprocess.run(
        ["bash", "-c", asking], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.split()) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shells_script_can_be_shown(shell: str, folder: Path) -> None:
    shown = fedlingua([], folder, _FEDLINGUA_COMPLETE=f"source_{shell}")
    assert (shown.code, f"_FEDLINGUA_COMPLETE=complete_{shell}" in shown.out) == (0, True)
    offered = fedlingua(["--help"], folder).told
    assert "--install-completion" in offered
    assert "--show-completion" in offered
