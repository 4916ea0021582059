"""What a user can get wrong on the command line: told what, where and what to do, within 3 s, with nothing written and no engine started.

Each in this process, and the first of every command as a real one, too, which is timed.
"""

import io
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.check_settings import check_device
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import FAILED, USAGE, run_commands
from tests.commands import leaf_commands
from tests.gate import cases
from tests.workspace import FEDERATION, SLOW, Answered, fedlingua, files_of, make_workspace


def file(name: str, text: str) -> Callable[[Path], None]:
    """Something that stands in the user's folder besides."""

    def put(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return put


def without(module: str) -> Callable[[Path], None]:
    """A library that is not installed: as if nobody had, since one that raises ImportError comes first on the path."""
    return file(f"missing/{module}.py", f'raise ImportError("No module named {module}")\n')


@dataclass(frozen=True)
class Mistake:
    """One line of the table. what, where, todo: each a part of the message, or several between ` | `; has: what the folder has besides."""

    arguments: str
    what: str
    where: str
    todo: str
    code: int = FAILED
    has: Callable[[Path], None] | None = None

    @property
    def command(self) -> str:
        """As in `corpus check`."""
        words = [word for word in shlex.split(self.arguments)[:2] if not word.startswith("-")]
        return next(name for name in COMMANDS if name == " ".join(words) or name == words[0])

    @property
    def fragments(self) -> list[str]:
        return [part for told in (self.what, self.where, self.todo) for part in told.split(" | ")]


def bad_federation(folder: Path) -> None:
    file("bad.toml", '[[site]]\nname = "h"\ndirection = "defr"\ntsv = "de-fr.tsv"\n')(folder)
    file("other.toml", f'federation = "{folder / "bad.toml"}"\n')(folder)


def japanese(folder: Path) -> None:
    """A federation that translates into Japanese, where nothing tells its words apart."""
    file("sites.toml", FEDERATION.replace("pl-es", "de-ja"))(folder)
    shutil.copy(folder / "pl-es.tsv", folder / "de-ja.tsv")
    file("ja.toml", f'federation = "{folder / "sites.toml"}"\n')(folder)
    for module in ("MeCab", "ipadic"):
        without(module)(folder)


def one_and_two(folder: Path) -> None:
    """Files of so many lines."""
    file("one", "a\n")(folder)
    file("two", "a\nb\n")(folder)


def halves(folder: Path) -> None:
    """One language in each file."""
    file("h/x.de", "a b\n" * 60)(folder)
    file("h/x.fr", "c d\n" * 60)(folder)


def typos(folder: Path) -> None:
    """Three mistakes in one file."""
    file("typos.toml", "roundss = 3\nbach-size = 4\nrounds = 0\n")(folder)


def cut_pairs(folder: Path) -> None:
    """Pairs of which the first line was broken off."""
    for split in ("train", "devel", "test"):
        file(f"rel/{split}.jsonl", '{"text": "Aspirin for his\n')(folder)


def deployed_site(folder: Path) -> None:
    file(
        "st/site.toml",
        '[[site]]\nname = "h"\ndirection = "de-fr"\ntsv = "x.tsv"\n[server]\naddress = "localhost:9"\ninsecure = true\n',
    )(folder)


def deployed_server(folder: Path, port: int) -> None:
    file("server/server.toml", f'fleet = "127.0.0.1:{port}"\ncontrol = "127.0.0.1:{port}"\ninsecure = true\n')(folder)
    file("server/federation.toml", 'name = "f"\n')(folder)
    (folder / "server" / "flower").mkdir()  # where its lock lies


BUSY = [0]
"""A port that this test listens on."""


def privileged(folder: Path) -> None:
    first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if os.geteuid() == 0 or not first.is_file() or int(first.read_text()) <= 81:
        pytest.skip("this user may listen on every port")
    deployed_server(folder, 81)


def shut(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (folder / "shut").mkdir(mode=0o500)


def no_gpu(folder: Path) -> None:
    try:
        check_device("cuda")
    except ConfigError:
        return
    pytest.skip("this machine has a GPU")


OWN = "run small.toml --data . --set "
FLOWERS = f"{OWN}strategy=flwr.serverapp.strategy:"
own_file = file(
    "own.py",
    """
from clients.translation import TranslationClient
from flwr.client import NumPyClient
from flwr.serverapp.strategy import FedAvg
from strategies.strategy import SiteStrategy

class Habit(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.1
        return super().configure_train(server_round, arrays, config, grid)

class Ruled(SiteStrategy):
    rule = staticmethod(lambda updates: updates[0].tensors)

class Plain(NumPyClient):
    pass
""",
)


def own(key: str, name: str) -> str:
    """The command line of a run with a class of `own_file`."""
    return f"{OWN}{key}=own:{name}"


def text_of(name: str, text: str) -> Callable[[Path], None]:
    """A federation of one site with a text of its own."""

    def put(folder: Path) -> None:
        file(f"{name}.tsv", text)(folder)
        file(f"{name}-sites.toml", f'[[site]]\nname = "h"\ndirection = "fr-de"\ntsv = "{name}.tsv"\n')(folder)
        file(f"{name}.toml", f'federation = "{folder}/{name}-sites.toml"\n')(folder)

    return put


swapped = text_of("swapped", "Der Arzt untersucht den alten Mann.\tLe médecin examine le vieil homme.\n" * 60)
cut_text = text_of("cut", "a\tb\nc\n")


def runs_is_a_file(folder: Path) -> None:
    (folder / "runs").rename(folder / "earlier")
    file("runs", "")(folder)


COMMANDS = leaf_commands(app)
TMX = '<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>\n<tu><tuv xml:lang="de"><seg>a</seg></tuv>\n</body></tmx>'
SITE_INIT = "site init --direction de-fr"
TABLE = [
    # Paths and files.
    Mistake("backbone show nowhere", "no such directory", "nowhere", "a hub id looks like"),
    Mistake("backbone fetch en-fr", "is not known", "'en-fr'", "choose one of en-pt, pt-en"),
    Mistake("backbone convert runs --direction de-fr --to new", "has none of model*.bin", "runs has", "wanted one"),
    Mistake("init nowhere --backbone demo --to new", "no such file", "nowhere", "check the path"),
    Mistake("init de-fr.tsv --backbone demo", "federation.toml already exists", "federation.toml", "another folder with --to"),
    Mistake("init runs --backbone demo --to new", "no text was found", "runs", "give .tsv"),
    Mistake("init small.toml --backbone demo --to new", "no text was found there", "small.toml", "give .tsv"),
    Mistake(
        "init x.tsv --backbone demo --to new",
        "no direction",
        "x.tsv",
        "--direction SOURCE-TARGET | x.de-fr.tsv",
        has=file("x.tsv", "a\tb\n"),
    ),
    Mistake("init a.de-fr.tsv --backbone demo --to new", "1 pairs", "site a", "wanted 50", has=file("a.de-fr.tsv", "a b\tc d\n")),
    Mistake("init de-fr.tsv --backbone nope --to new", "no such directory", "'nope'", "`fedlingua backbone fetch`"),
    Mistake("init h --backbone demo --to new", "translated either way", "h/x.{}: de and fr", "--direction", has=halves),
    Mistake("run smal.toml", "no such file", "smal.toml", "did you mean 'small.toml'?"),
    Mistake("run runs", "is a folder", "runs", "wanted a TOML file"),
    Mistake("run broken.toml", "not TOML", "broken.toml | line 2", "mend it", has=file("broken.toml", "rounds = 2\nmethod = \n")),
    Mistake("run suite.toml", "is a suite", "suite.toml", "`fedlingua suite suite.toml`"),
    Mistake("run federation.toml", "is a federation file", "federation.toml", "name it in an experiment file: federation ="),
    Mistake("run recipe.toml", "is a recipe", "recipe.toml", "`fedlingua pretrain recipe.toml`"),
    Mistake("suite small.toml", "is not a suite", "small.toml", "`fedlingua run`"),
    Mistake("pretrain small.toml", "is an experiment file", "small.toml", "`fedlingua run small.toml`"),
    Mistake("server start small.toml", "is an experiment file", "small.toml", "wanted a server's file"),
    Mistake("run small.toml --data nowhere", "no such file", "site hospital: | nowhere/de-fr.tsv", "give the folder with --data"),
    Mistake("run small.toml --data . --server nowhere", "no such server", "nowhere", "`fedlingua server init`"),
    Mistake("translate --run runs/dine --site court", "is not there", "runs/dine", "did you mean 'done'?"),
    Mistake("status small.toml", "it is a file", "small.toml", "give a folder that a run has made"),
    Mistake("translate --run runs/done --site court text.de", "no such file", "text.de", "a sentence a line"),
    Mistake("score --source de-fr.tsv --hypothesis x --reference x --direction de-fr", "no such file", "x", "check the path"),
    Mistake("finetune ner --data nowhere --encoder demo-encoder", "no such folder", "nowhere", "train, devel and test"),
    Mistake("finetune ner --data . --encoder runs", "no config.json", "--encoder runs", "give a folder"),
    Mistake("site start nowhere", "no such site", "nowhere", "`fedlingua site init`"),
    Mistake("site check federation.toml", "is a federation file", "federation.toml", "wanted a site's file"),
    Mistake("site log nowhere", "no such site", "nowhere", "give its folder or its site.toml"),
    Mistake("site approve --site nowhere", "no such site", "nowhere", "give its folder or its site.toml"),
    # Keys and values.
    Mistake(
        "run typo.toml", "round = 3 | no such key", "typo.toml", "did you mean 'rounds'?", has=file("typo.toml", "round = 3\n")
    ),
    Mistake("run text.toml", "rounds = '3' is of type str", "text.toml", "wanted int", has=file("text.toml", 'rounds = "3"\n')),
    Mistake("run small.toml --set learning-rate=nan", "learning-rate = nan", "command line", "wanted a finite number"),
    Mistake("run small.toml --seed -1", "seed = -1 is too small", "command line", "wanted at least 0"),
    Mistake("run small.toml --set rounds", "'rounds'", "--set", "wanted key=value"),
    Mistake("run small.toml --rounds 3", "is a key, not an option", "--rounds", "--set rounds=VALUE", USAGE),
    Mistake("run small.toml --nodes 0", "0 is not in the range", "--nodes", "x>=1", USAGE),
    Mistake("run", "Invalid value", "--resume", "give an experiment file", USAGE),
    Mistake("run small.toml --set method=adapter-familes", "not known", "method = 'adapter-familes'", "mean 'adapter-families'?"),
    Mistake("run small.toml --data . --profile simulate", "--profile 'simulate'", "pyproject-flwr.toml", "choose one of"),
    Mistake("run small.toml --data . --ray-address somewhere", "HOST:PORT", "ray-address = 'somewhere'", "give HOST:PORT"),
    Mistake(
        "run small.toml --data . --ray-address 127.0.0.1:1", "nothing answers", "'127.0.0.1:1'", "`ray start --head --port=6379`"
    ),
    Mistake("run small.toml --data . --profile deployment --ray-address a:1", "for simulations", "'deployment'", "leave it out"),
    Mistake("run small.toml --data . --server s --ray-address a:1", "for simulations", "--ray-address", "leave one out", USAGE),
    Mistake("run small.toml --data . --set backbone=nope", "no such directory", "backbone = 'nope'", "'demo' is built in"),
    Mistake("run small.toml --data . --set strategy=mine:Mean", "no mine.py", "strategy = 'mine:Mean'", "beside"),
    Mistake("run small.toml --set metrics=bleu,comett", "no metric 'comett'", "command line", "did you mean 'comet'?"),
    Mistake("suite suite.toml --set method=base", "sets it itself", "--set method | suite.toml", "leave it out"),
    Mistake("suite suite.toml --jobs 0", "0 is not in the range", "--jobs", "x>=1", USAGE),
    Mistake("suite suite.toml --data . --profile simulate", "'simulate'", "--profile", "choose one of"),
    Mistake(
        "suite suite.toml --data . --ray-address 127.0.0.1:1 --jobs 2",
        "takes all of the Ray cluster",
        "--jobs 2",
        "leave --jobs out",
    ),
    Mistake("pretrain recipe.toml --set training.stepz=1", "stepz = 1", "recipe.toml [training]", "did you mean 'steps'?"),
    Mistake(
        "pretrain recipe.toml --set training.learning-rate=nan", "learning-rate = nan", "[training]", "wanted a number above 0"
    ),
    Mistake(
        "pretrain recipe.toml --set model.heads=3", "heads = 3", "recipe.toml [model]", "wanted a d-model that its heads divide"
    ),
    Mistake("run other.toml", "'defr' is not a direction", "bad.toml, site h", "source-target", has=bad_federation),
    Mistake("translate --run runs/done --direction de-xx", "'xx' is not known", "--direction = 'de-xx'", "wanted a BCP-47 code"),
    Mistake("translate --run runs/done", "needs --site or --direction", "translate", "hospital, court"),
    Mistake(
        "translate --run runs/done --site court --direction de-fr", "got --site and --direction", "translate", "leave one out"
    ),
    Mistake("translate --run runs/done --site curt", "no site 'curt'", "runs/done", "did you mean 'court'?"),
    Mistake("score --run runs/done --metric blue", "no metric 'blue'", "metric", "did you mean 'bleu'?"),
    Mistake("score --run runs/done --site hospitl", "no site 'hospitl'", "runs/done", "did you mean 'hospital'?"),
    Mistake("personalize --run runs/done --site hospitl", "no site 'hospitl'", "runs/done", "did you mean 'hospital'?"),
    Mistake("audit leak runs/done --site hospitl", "no site 'hospitl'", "runs/done", "did you mean 'hospital'?"),
    Mistake("personalize --run runs/done --alpha-rate -1", "-1.0", "--alpha-rate", "x>=0", USAGE),
    Mistake("report runs/done --bandwidth nan", "nan is not a positive number", "bandwidth", "such as 1000"),
    Mistake("compare runs/done", "cannot be compared", "1 run", "give two run folders or more"),
    Mistake("compare runs/done runs/other", "different text", "at site hospital", "compare runs of one federation file"),
    Mistake("corpus check de-fr.tsv --direction de-fr --set min-word=2", "min-word = 2", "--set", "did you mean 'min-words'?"),
    Mistake("corpus check federation.toml --direction de-fr", "names no kind", "federation.toml", "--kind"),
    Mistake("corpus convert de-fr.tsv --direction de-fr --to x.doc", "names no format", "x.doc", "wanted .tsv"),
    Mistake("corpus split de-fr.tsv --direction de-fr --to out --shares nan,0.5,0.5", "nan", "--shares", "add up to 1"),
    Mistake("corpus overlap runs/done", "no overlap.json", "runs/done", "overlap = 'report'"),
    Mistake("corpus prepare ted2021 --from . --to data", "not known", "corpus 'ted2021'", "did you mean 'ted2020'?"),
    Mistake("corpus prepare ted2020 --to data", "--from is missing", "ted2020", "a folder of downloads"),
    Mistake("finetune ner --data . --encoder demo-encoder --learning-rate nan", "nan", "--learning-rate", "a number above 0"),
    Mistake("finetune ner --data . --run runs/done", "trains no encoder", "runs/done", "task = 'masked-language'"),
    Mistake("site approve 12ab --site st", "is not the hash", "'12ab'", "`fedlingua bundle`", has=deployed_site),
    # Text that cannot be read.
    Mistake(
        "corpus check x.tsv --direction de-fr", "got 1 column", "x.tsv, line 2", "mend the line", has=file("x.tsv", "a\tb\nc\n")
    ),
    Mistake(
        "corpus check x.tmx --direction de-fr",
        "not well-formed XML",
        "x.tmx, line 4",
        "is the file whole?",
        has=file("x.tmx", TMX),
    ),
    Mistake(
        "score --source two --hypothesis one --reference one --direction de-fr",
        "two has 2 lines, one has 1",
        "one",
        "wanted as many in each",
        has=one_and_two,
    ),
    Mistake(
        "finetune pairs --data rel --encoder demo-encoder",
        "no JSON object",
        "train.jsonl, line 1",
        "wanted one a line",
        has=cut_pairs,
    ),
    # Runs that are not whole, not over, or of another version.
    Mistake("run --resume runs/done", "is completed", "runs/done", "--set rounds=N"),
    Mistake("run --resume runs/killed --seed 3", "keeps the run's seed", "--resume", "leave --seed and --to out", USAGE),
    Mistake("run --resume runs/empty", "no run.json", "runs/empty", "give a folder that a run has made"),
    Mistake("run --resume runs/cut", "is not JSON", "runs/cut/run.json", "restore it, or run again"),
    Mistake("run --resume runs/stopped", "another version | beams = 5", "runs/stopped", "did you mean 'beam'?"),
    Mistake("translate --run runs/old --site court", "another version | beams = 5", "runs/old", "did you mean 'beam'?"),
    Mistake("translate --run runs/killed --site court", "not completed", "runs/killed", "fedlingua run --resume runs/killed"),
    Mistake("translate --run runs/done --site court", "no such checkpoint", "runs/done/checkpoints/0002", "kept rounds: none"),
    Mistake("score --run runs/unscored", "scores.json is missing", "runs/unscored", "run again"),
    Mistake("compare runs/done runs/killed", "scored at its end", "runs/killed", "fedlingua run --resume runs/killed"),
    Mistake("compare runs/done runs/cut", "is not JSON", "runs/cut/run.json", "run again"),
    Mistake("audit leak runs/killed", "running, not completed", "runs/killed", "fedlingua run --resume runs/killed"),
    Mistake("report runs/cut", "Unterminated string", "runs/cut/run.json", "restore it, or run again"),
    Mistake("status runs/cut", "is not JSON", "runs/cut/run.json", "run again"),
    Mistake("suite --rebuild runs/empty", "no suite.json", "runs/empty", "give a folder"),
    Mistake("site translate --site st --name court", "not for 'court'", "speaks for h", "--name", has=deployed_site),
    Mistake("site export --site st --to x --name court", "not for 'court'", "speaks for h", "--name", has=deployed_site),
    Mistake("site translate --site st", "nothing was delivered", "st/state", "at its end", has=deployed_site),
    Mistake("site export --site st --to x", "nothing was delivered", "st/state", "at its end", has=deployed_site),
    Mistake("export --run runs/killed --site court --to x", "not completed", "runs/killed", "fedlingua run --resume runs/killed"),
    Mistake("export --run runs/done --site court --to x --form onnx", "'onnx'", "--form", "adapter, peft, transformers"),
    Mistake("export --run runs/done --site court --to runs", "already exists", "runs", "another folder"),
    Mistake("serve --run runs/killed", "not completed", "runs/killed", "fedlingua run --resume runs/killed"),
    Mistake("serve --run runs/done --port many", "'many' is not a valid integer", "--port", "Usage", USAGE),
    Mistake("watch runs/empty", "no run.json", "runs/empty", "--wait"),
    Mistake("track runs/done --to tensorbord", "'tensorbord'", "tensorboard", "did you mean"),
    Mistake("track runs/done", "no tracker", "runs/done", "--to"),
    Mistake("doctor --colour", "No such option", "--colour", "Usage", USAGE),
    Mistake("compare runs/done runs/done --to runs", "a page is one file", "--to runs", "runs/comparison.html"),
    Mistake("run small.toml --data . --set track=tensorbord", "'tensorbord'", "track", "did you mean 'tensorboard'?"),
    # Targets that are there, or cannot be.
    Mistake("run small.toml --data . --to runs/done", "holds a run already", "--to runs/done", "another folder"),
    Mistake("run small.toml --data . --to small.toml/run", "is a file", "--to small.toml/run", "another path"),
    Mistake("suite suite.toml --data . --runs small.toml", "is a file", "--runs small.toml", "give a folder"),
    Mistake("pretrain recipe.toml --to runs/done", "already holds files", "--to runs/done", "a new folder"),
    Mistake("report runs/done --keep small.toml", "is a file", "--keep small.toml", "give a folder"),
    Mistake("bundle --to runs", "is a folder", "--to runs", "give a file"),
    Mistake("corpus convert de-fr.tsv --direction de-fr --to pl-es.tsv", "already exists", "pl-es.tsv", "another name with --to"),
    Mistake("corpus split de-fr.tsv --direction de-fr --to runs", "already exists", "runs", "another folder with --to"),
    Mistake("corpus split de-fr.tsv --direction de-fr --to small.toml/x", "is a file", "--to small.toml/x", "another path"),
    Mistake("finetune pairs --data . --encoder demo-encoder --to runs", "already holds files", "--to runs", "a new folder"),
    Mistake("server init --host localhost --to small.toml", "is a file", "--to small.toml", "give a folder"),
    Mistake("site overlap-key small.toml", "already exists", "small.toml", "give another file"),
    Mistake("run small.toml --data . --to shut/run", "cannot be written", "--to shut/run", "another path", has=shut),
    # Addresses and ports.
    Mistake("server init --host x --fleet 0.0.0.0:ninety", "'0.0.0.0:ninety'", "fleet", "wanted host:port"),
    Mistake(
        "server runs server", "no server answers", "127.0.0.1:81", "fedlingua server start", has=lambda f: deployed_server(f, 81)
    ),
    Mistake("server stop server demo", "no run 'demo'", "server", "fedlingua server runs", has=lambda f: deployed_server(f, 81)),
    Mistake("server logs server demo", "no run 'demo'", "server", "fedlingua server runs", has=lambda f: deployed_server(f, 81)),
    Mistake("server init", "give --host", "--host", "sites reach this server by", USAGE),
    Mistake(
        "server add server nowhere.toml", "no such file", "nowhere.toml", "check the path", has=lambda w: deployed_server(w, 1)
    ),
    Mistake(
        "server start server", "in use", "fleet = '127.0.0.1:", "another host:port", has=lambda w: deployed_server(w, BUSY[0])
    ),
    Mistake("server start server", "may not listen", "'127.0.0.1:81'", "1024 or above", has=privileged),
    Mistake(f"{SITE_INIT} --name h --server x --tsv de-fr.tsv --insecure --to st", "'x'", "--server", "wanted host:port"),
    Mistake(
        f"{SITE_INIT} --name h --server x:1 --tsv no.tsv --insecure --to st", "no such file", "site h: no.tsv", "check the path"
    ),
    Mistake(
        f"{SITE_INIT} --name h --server x:1 --tsv de-fr.tsv --to st",
        "Invalid value",
        "--authority",
        "--server goes with --authority, the server's ca.crt",
        USAGE,
    ),
    Mistake(
        f"{SITE_INIT} --name h --server x:1 --tsv de-fr.tsv --insecure --authority ca.crt --to st",
        "Invalid value",
        "--insecure",
        "--server goes with --authority | or with --insecure",
        USAGE,
    ),
    Mistake(f"{SITE_INIT} --name h --server x:² --tsv de-fr.tsv --insecure --to st", "'x:²'", "--server", "wanted host:port"),
    Mistake(
        "run small.toml --data . --server server --nodes 3",
        "is for simulations",
        "--server runs across sites, and --nodes",
        "leave one out",
        USAGE,
    ),
    Mistake(
        "run small.toml --server server --set metrics=bleu,chrf,comet --set comet-model=x/y.ckpt",
        "is a relative path",
        "comet-model = 'x/y.ckpt'",
        "give the absolute path",
        has=lambda w: deployed_server(w, 1),
    ),
    Mistake(
        "site approve --site st --federation federation.toml", "a run's settings", "--federation", "give its --experiment", USAGE
    ),
    Mistake(
        "server add server bad.join.toml",
        "site 1 is 'x'",
        "bad.join.toml",
        "wanted a table, [[site]]",
        has=lambda w: (deployed_server(w, 1), file("bad.join.toml", 'site = ["x"]\n')(w))[0],
    ),
    # What is not installed or not here.
    Mistake("run ja.toml --data .", "packages are not installed", "BLEU into 'ja'", "pip install", has=japanese),
    # A class of one's own.
    Mistake(own("strategy", "Habits"), "own has no 'Habits'", "strategy = 'own:Habits'", "did you mean 'Habit'?", has=own_file),
    Mistake(own("strategy", "Habit"), "config has lr", "strategy = 'own:Habit'", "did you mean 'learning-rate'?", has=own_file),
    Mistake(own("strategy", "Ruled"), "has a rule", "'own:Ruled'", "strategies.methods.fed_mean.FedMean", has=own_file),
    Mistake(own("client", "Plane"), "own has no 'Plane'", "client = 'own:Plane'", "did you mean 'Plain'?", has=own_file),
    Mistake(own("client", "Plain"), "wanted a subclass of clients.site_client", "'own:Plain'", "TranslationClient", has=own_file),
    Mistake(own("layers", "Plain"), "wanted a subclass of fedlingua.layers", "'own:Plain'", "Layer", has=own_file),
    Mistake(
        own("client", "Plain"), "cannot import 'own'", "own.py", "mend the SyntaxError", has=file("own.py", "class Plain(:\n")
    ),
    Mistake(f"{OWN}strategy=Krum", "is not known", "strategy = 'Krum'", "'flwr.serverapp.strategy:Krum' for a class of Flower's"),
    Mistake(f"{FLOWERS}FedMedain", "has no 'FedMedain'", "flwr.serverapp.strategy", "did you mean 'FedMedian'?"),
    Mistake(f"{FLOWERS}'FedAvg(fraction_train=0.5)'", "how many sites", "fraction_train", "sites-per-round = 0.5"),
    Mistake(
        f"{FLOWERS}FedMedian --set aggregation=fed-avg", "a rule of its own", "aggregation = 'fed-avg'", "leave it 'fed-mean'"
    ),
    # Text that a run could not use.
    Mistake("run swapped.toml --data .", "columns are swapped", "site h", "give the direction de-fr", has=swapped),
    Mistake("run cut.toml --data .", "got 1 column(s)", "cut.tsv, line 2", "mend the line", has=cut_text),
    # What cannot be written, or not in this form.
    Mistake("run small.toml --data . --to /proc/run", "cannot be written", "--to /proc/run", "another path"),
    Mistake("run small.toml --data .", "runs: is a file", "--to is not given", "give a folder", has=runs_is_a_file),
    Mistake("pretrain recipe.toml --to /proc/model", "cannot be written", "--to /proc/model", "another path"),
    Mistake("report runs/done --keep /proc/page", "cannot be written", "--keep /proc/page", "another path"),
    Mistake("export --run runs/done --site court --to x --form peft", "peft has no form", "--form peft", "choose --form adapter"),
    Mistake("run small.toml --resume runs/killed", "an experiment file and --resume", "--resume", "leave one out", USAGE),
    # Columns and keys.
    Mistake("corpus check de-fr.tsv --direction fr-de", "columns are swapped | 82% of", "de-fr.tsv", "give the direction de-fr"),
    Mistake(
        "run typos.toml",
        "roundss = 3 | bach-size = 4 | rounds = 0 is too small",
        "typos.toml: rounds = 0",
        "did you mean | nearest:",
        has=typos,
    ),
    Mistake("score --run runs/done --metric comet --model x.ckpt", "no such checkpoint", "COMET model x.ckpt", "give the path"),
    Mistake(
        "run small.toml --data . --set device=cuda",
        "no GPU driver",
        "device = 'cuda'",
        "give device = 'cpu'",
        has=no_gpu,
    ),
    Mistake("run small.toml --data . --set frozen-bits=4", "without a GPU", "frozen-bits = 4, and device = 'cpu'", "give 'cuda'"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("whole") / "w")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the workspace, so that what one mistake leaves is no other's."""
    copy = tmp_path / "w"
    shutil.copytree(whole, copy, symlinks=True)
    for path in copy.glob("*.toml"):
        path.write_text(path.read_text().replace(str(whole), str(copy)))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        BUSY[0] = listener.getsockname()[1]
        yield copy


def test_the_table_is_long_enough_and_has_every_command() -> None:
    assert len({(one.arguments, one.where) for one in TABLE}) == len(TABLE) >= 40
    lacking = set(COMMANDS) - {one.command for one in TABLE}
    assert not lacking, f"the table above has no mistake of: {', '.join(sorted(lacking))}; add one for each"


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mistake], Answered]]:
    """The command line in this process; as a real one where a library is missing."""
    home = folder / "home"
    for name, value in {"HOME": home, "XDG_CACHE_HOME": home / ".cache", "COLUMNS": "400", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, str(value))
    for name in ("HF_HOME", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["fedlingua"])
    monkeypatch.setattr("fedlingua.desk.check_settings.APP_DIR", folder)
    started = list[Engine]()
    monkeypatch.setattr(Engine, "__enter__", started.append)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}

    def answered(mistake: Mistake) -> Answered:
        words = shlex.split(mistake.arguments)
        if (folder / "missing").is_dir():
            return fedlingua(words, folder, PYTHONSAFEPATH="1")
        out, err, began = io.StringIO(), io.StringIO(), time.process_time()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            run_commands(app, words)
        assert time.process_time() - began < 3
        assert not started
        return Answered(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    yield answered
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("mistake", TABLE, ids=lambda one: f"{one.arguments} ({one.what})")
def test_a_mistake_is_told_with_what_where_and_what_to_do(
    mistake: Mistake, folder: Path, here: Callable[[Mistake], Answered]
) -> None:
    if mistake.has:
        mistake.has(folder)
    before = files_of(folder)
    answered = here(mistake)
    assert answered.code == mistake.code, answered.told
    assert "Traceback" not in answered.told
    for fragment in mistake.fragments:
        assert fragment in answered.told
    assert files_of(folder) == before


OF_EACH = {one.command: one for one in reversed(TABLE)}


@pytest.mark.parametrize("command", cases(OF_EACH, list(OF_EACH)[::3]))
def test_a_mistake_is_told_as_json_too(command: str, folder: Path) -> None:
    mistake = OF_EACH[command]
    if mistake.has:
        mistake.has(folder)
    answered = fedlingua([*shlex.split(mistake.arguments), "--format", "json"], folder)
    error = json.loads(answered.out)["error"]
    assert (answered.code, error["exit_code"]) == (mistake.code, mistake.code)
    assert not answered.imported & SLOW
    told = " ".join(error["message"].split())
    for fragment in mistake.fragments:
        assert fragment in f"{told} {error['kind']} Invalid value" if mistake.code == USAGE else fragment in told
