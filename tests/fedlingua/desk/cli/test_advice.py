"""Advice in messages works: what a message says to give or to do is given or done, and is not refused in turn.

Not here: advice that takes a finished run, a network, a package or a GPU to follow.
"""

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedlingua_demo
from fedlingua.desk.cli import run, site
from fedlingua.desk.cli.app import app
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.certificates import make_certificates
from fedlingua_demo import phrasebook

Step = str | Callable[[], object]
"""A command, or what a reader of the advice does otherwise."""
SERVER = "server init --to server --host a.example.org"
SITE = "site init --name clinic --direction de-fr --tsv good.tsv"
RUN = "run small.toml"
NINE = Path(__file__).parents[4] / "experiments/federations/phrasebook_nine.toml"


@dataclass(frozen=True)
class Advice:
    """A message's advice. first: what is in order before. mistaken: what brings the message. words: of the advice. then: followed."""

    mistaken: str
    words: str
    then: tuple[Step, ...]
    first: tuple[Step, ...] = ()


def rename(*names: tuple[str, str]) -> Callable[[], object]:
    return lambda: [Path(name).rename(other) for name, other in names]


def edit(name: str, old: str, new: str) -> Callable[[], object]:
    def edited() -> None:
        text = Path(name).read_text()
        assert old in text
        Path(name).write_text(text.replace(old, new))

    return edited


def delete_site() -> None:
    file = Path("server/federation.toml")
    file.write_text(file.read_text().partition("[[site]]")[0])


def hashed() -> None:
    """As `fedlingua bundle` prints it."""
    Path("hash").write_text(hashlib.sha256(build_bundle(site.APP_DIR)).hexdigest())


ADD = "server add server site/clinic.join.toml"
OTHER = (SERVER, SITE, ADD, f"{SITE} --to other")
TABLE = [
    Advice(
        "corpus check swapped.tsv --direction de-fr", "give the direction fr-de", ("corpus check swapped.tsv --direction fr-de",)
    ),
    Advice(
        "corpus check swapped --direction de-fr",
        "where files, fields or tags are named by language, exchange their names",
        (
            rename(("swapped.de", "x"), ("swapped.fr", "swapped.de"), ("x", "swapped.fr")),
            "corpus check swapped --direction de-fr",
        ),
    ),
    Advice("corpus check text.dat --direction de-fr", "give --kind", ("corpus check text.dat --direction de-fr --kind tsv",)),
    Advice(
        "corpus convert good.tsv --direction de-fr --to x.y",
        "--as moses",
        ("corpus convert good.tsv --direction de-fr --to x --as moses",),
    ),
    Advice("server init", "give --host", ("server init --host a.example.org",)),
    Advice(SERVER, "give another folder with --to", ("server init --host a.example.org --to second",), (SERVER,)),
    Advice(ADD, "`fedlingua server init` makes", (SERVER, ADD), (SITE,)),
    Advice(
        "server add server other/clinic.join.toml",
        "give the new one another name with `fedlingua site init --name`",
        (f"{SITE.replace('clinic', 'court')} --to third", "server add server third/court.join.toml"),
        OTHER,
    ),
    Advice(
        "server add server other/clinic.join.toml",
        "first delete the old [[site]] from that file",
        (delete_site, "server add server other/clinic.join.toml"),
        OTHER,
    ),
    Advice("server add server empty.toml", "as `fedlingua site init` writes it", (SITE, ADD), (SERVER,)),
    Advice(SITE, "give another folder with --to", (f"{SITE} --to second",), (SITE,)),
    Advice(f"{SITE} --server a:1", "--server goes with --authority", (f"{SITE} --server a:1 --authority ca/ca.crt",)),
    Advice(f"{SITE} --server a:1", "or with --insecure", (f"{SITE} --server a:1 --insecure",)),
    Advice(f"{SITE} --authority ca/ca.crt", "give none of them", (SITE,)),
    Advice("site log", "`fedlingua site init` makes", (SITE, "site log")),
    Advice("site log empty.toml", "`fedlingua site init` writes one", (SITE, "site log")),
    Advice(
        "site approve --yes --experiment server/experiment.toml",
        "needs --federation",
        ("site approve --yes --experiment server/experiment.toml --federation server/federation.toml",),
        (SERVER, f"{SITE} --server a:1 --authority ca/ca.crt", ADD),
    ),
    Advice(
        "site approve --yes --set rounds=2",
        "give its --experiment, too",
        ("site approve --yes --set rounds=2 --experiment server/experiment.toml --federation server/federation.toml",),
        (SERVER, f"{SITE} --server a:1 --authority ca/ca.crt", ADD),
    ),
    Advice(
        "site approve 12ab",
        "that `fedlingua bundle` shows",
        (hashed, "site approve $(cat hash)"),
        (f"{SITE} --server a:1 --insecure",),
    ),
    Advice(
        "site check --no-knock",
        "make another site: fedlingua site init --to FOLDER",
        (f"{SITE} --to second", "server add server second/clinic.join.toml"),
        (SERVER, f"{SITE} --server a:1 --authority ca/ca.crt", lambda: Path("site/keys/site.key").unlink()),
    ),
    Advice(
        "site check --no-knock --experiment folder.toml",
        'in [backbones]: "/models/ours" = "/path/of/its/folder"',
        (
            edit("site/site.toml", "[backbones]\n", '[backbones]\n"/models/ours" = "/path/of/its/folder"\n'),
            edit("site/site.toml", "/path/of/its/folder", str(fedlingua_demo.BACKBONE)),
            "site check --no-knock --experiment folder.toml",
        ),
        (f"{SITE} --server a:1 --insecure",),
    ),
    Advice(f"{RUN} --rounds 2", "give it as --set rounds=VALUE", (f"{RUN} --set rounds=2",)),
    Advice("run", "give an experiment file", (RUN,)),
    Advice(f"{RUN} --server server --nodes 2", "leave one out", (f"{RUN} --nodes 2",)),
    Advice(
        "run server/server.toml",
        "start it with `fedlingua server start",
        ("server add server/server.toml site/clinic.join.toml",),
        (SERVER, SITE),
    ),
    Advice("server add small.toml site/clinic.join.toml", "run it with `fedlingua run small.toml`", (RUN,), (SITE,)),
    Advice(
        "run federation.toml",
        "name it in an experiment file: federation = 'federation.toml'",
        (edit("small.toml", f'federation = "{NINE}"', "federation = 'federation.toml'"), RUN),
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Text, an experiment and a federation in the current folder; a run is over once it would begin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "carry_out", lambda *_: None)
    text = phrasebook.register_corpus("hospital", 700, 5)
    for name, (left, right) in {"good": ("de", "fr"), "swapped": ("fr", "de")}.items():
        rows = [f"{a}\t{b}\n" for a, b in zip(text[left], text[right], strict=True)]
        Path(f"{name}.tsv").write_text("".join(rows))
        for side, language in zip(("de", "fr"), (left, right), strict=True):
            Path(f"{name}.{side}").write_text("".join(f"{line}\n" for line in text[language]))
    Path("text.dat").write_text(Path("good.tsv").read_text())
    Path("small.toml").write_text(f'federation = "{NINE}"\nbackbone = "demo"\n')
    Path("folder.toml").write_text('backbone = "/models/ours"\n')
    Path("federation.toml").write_text('name = "f"\n[[site]]\nname = "clinic"\ndirection = "de-fr"\ntsv = "good.tsv"\n')
    Path("empty.toml").write_text("")
    make_certificates(tmp_path / "ca", ["a"])
    return tmp_path


def give(command: str) -> tuple[int, str]:
    words = shlex.split(command.replace("$(cat hash)", Path("hash").read_text() if Path("hash").is_file() else ""))
    done = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    return done.exit_code, f"{done.output}\n{done.exception or ''}"


@pytest.mark.parametrize("advice", TABLE, ids=lambda one: f"{one.mistaken} ({one.words})")
def test_what_a_message_advises_is_not_refused(advice: Advice, folder: Path) -> None:
    for step in advice.first:
        if callable(step):
            step()
        else:
            assert give(step)[0] == 0, step
    code, message = give(advice.mistaken)
    assert code != 0
    assert advice.words in " ".join(message.replace("│", " ").split())
    for step in advice.then:
        if callable(step):
            step()
        else:
            code, message = give(step)
            assert code == 0, f"{step}\n{message}"
