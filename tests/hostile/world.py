"""Small federations whose sites answer through the real ClientApp, each question once; and one of them says something else.

What an honest site answers depends on what it is asked and on the files that it keeps between two questions: so an answer is made
once in a process and given again, with those files and the name of the run that asks, and a row of a table costs what the server does.
Replies cross as on the real grid: deflated into Flower's objects and inflated out of them.
"""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.exchange import protocol
from fedlingua.settings.experiment import default_run_config
from fedlingua_demo import phrasebook
from tests.encoders import WORDS, build_xlmr
from tests.federations import FOUR_SITES, FOUR_TEXTS
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run_on

SITE = "court"
"""Who attacks; the others of the federation are honest."""
ROUNDS = 2
Contents = dict[str, bytes]
"""object id -> an object as Flower serializes it"""
Files = dict[str, bytes]
"""path below a site's folder -> content"""


@dataclass(frozen=True)
class Lie:
    """What the site does to its own replies of one phase and round; all others are honest.

    content: changes a reply. wire: changes its serialized objects, given the message's id. instead: comes in the reply's place. until: the
    last round of the lie, where there are several. times: after which it answers honestly.
    """

    phase: str
    number: int = 1
    content: Callable[[Message], object] | None = None
    wire: Callable[[Contents, str], object] | None = None
    instead: Callable[[Message], Message] | None = None
    until: int = 0
    times: int = 99


@dataclass(frozen=True)
class World:
    """A federation's run config, but for its folder."""

    config: Mapping[str, Any]
    answers: dict[tuple[Any, ...], tuple[Message, Files]] = field(default_factory=dict)


@cache
def _home() -> Path:
    """Backbones and federation files, made once in a process."""
    home = Path(tempfile.mkdtemp(prefix="fedlingua-hostile-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    phrases = phrasebook.base_corpus(300, 1)
    sentences = [sentence for lines in phrases.values() for sentence in lines]
    tokenizer = build_tokenizer(sentences, phrasebook.LANGUAGES, 300, home / "tiny")
    size = ModelSize(d_model=16, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=32, vocab_size=300, max_positions=64)
    build_model(size, tokenizer, seed=7).save_pretrained(home / "tiny")
    words = sorted({word for lines in phrases.values() for line in lines for word in line.split()})
    build_xlmr(home / "tiny-encoder", [*WORDS, *words])
    (home / "four.toml").write_text(FOUR_SITES)
    (home / "texts.toml").write_text(FOUR_TEXTS)
    (home / "overlap.key").write_bytes(bytes(range(32)))
    return home


@cache
def world(*changes: tuple[str, Any]) -> World:
    """Four sites that translate, three of whose answers suffice, with changes of the run config."""
    home = _home()
    short = {"adapter.dim": 4, "batch-size": 8, "beam": 1, "rounds": ROUNDS, "max-tokens": 32, "max-decode-tokens": 8}
    where = {
        "backbone": str(home / "tiny"),
        "federation": str(home / "four.toml"),
        "deadline.phase-s": 30.0,
        "deadline.join-s": 1.0,
    }
    method = {"method": "adapter-fed", "quorum": 0.5, "learning-rate": 0.03}
    config = {**default_run_config(), "keep.choose": False, "send.code": "none", **short, **where, **method, **dict(changes)}
    if config["task"] == "masked-language":
        config |= {"backbone": str(home / "tiny-encoder"), "federation": str(home / "texts.toml"), "lora.targets": "query,value"}
    return World(config)


class HostileGrid(InProcessGrid):
    """Four nodes with a site each; `lie` is what the court's does."""

    def __init__(self, world: World, directory: Path, lie: Lie | None) -> None:
        self.world, self.lie, self.lied = world, lie, 0
        super().__init__({**world.config, "run-dir": str(directory)}, 4)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._arrived(number, self.replies.pop(number)) for number in message_ids if number in self.replies]

    def _arrived(self, number: str, reply: Message) -> Message:
        request = next(message for message in reversed(self.sent) if message.metadata.message_id == number)
        lie = self.lie if self.lie and self.lied < self.lie.times and self._is_asked_to(self.lie, request) else None
        self.lied += lie is not None
        if lie and lie.instead:
            reply = lie.instead(request)
        if reply.has_error():
            return reply
        if lie and lie.content:
            lie.content(reply)
        with no_object_id_recompute():
            top = reply.object_id
            contents = {name: item.deflate() for name, item in get_all_nested_objects(reply).items()}
        if lie and lie.wire:
            lie.wire(contents, top)
        arrived = inflate_object_from_contents(top, contents)
        assert isinstance(arrived, Message)
        return arrived

    def _is_asked_to(self, lie: Lie, request: Message) -> bool:
        if request.metadata.message_type != lie.phase:
            return False
        if lie.phase == protocol.DESCRIBE:
            return int(request.metadata.dst_node_id) == 101  # where the court is
        task = request.content.config_records[protocol.TASK]
        return task["site"] == SITE and lie.number <= int(str(task["round"])) <= max(lie.number, lie.until)

    def _run(self, message: Message) -> Message:
        """What an honest site answers, out of memory where it was asked the same before, in whichever run."""
        task = dict(message.content.config_records.get(protocol.TASK, ConfigRecord()))
        run = task.pop("run", None)
        asked = tuple((name, record.object_id) for name, record in message.content.items() if name != protocol.TASK)
        folder = Path(self.run_config["run-dir"]) / "sites" / str(task.get("site"))
        kept = sha256(repr(sorted(_files(folder).items())).encode()).digest()
        key = (message.metadata.message_type, message.metadata.dst_node_id, json.dumps(task, sort_keys=True), asked, kept)
        if key in self.world.answers:
            _put(self.world.answers[key][1], folder)
        else:
            self.world.answers[key] = super()._run(message), _files(folder)
        answer, _ = self.world.answers[key]
        if answer.has_error():
            return Message(answer.error, reply_to=message)
        records = RecordDict({name: _copied(record) for name, record in answer.content.items()})
        if run is not None:
            records[protocol.TASK] = ConfigRecord({**answer.content.config_records[protocol.TASK], "run": run})
        return Message(records, reply_to=message)


def _files(folder: Path) -> Files:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _put(files: Files, folder: Path) -> None:
    """Make the folder hold these files and no others."""
    for gone in _files(folder).keys() - files.keys():
        (folder / gone).unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _copied(record: Any) -> Any:
    return ArrayRecord(dict(record)) if isinstance(record, ArrayRecord) else type(record)(dict(record))


@dataclass(frozen=True)
class Played:
    """What became of a run. result: all that an honest site or a reader could see of the outcome; named: what was said of the court."""

    result: Mapping[str, Any]
    named: tuple[str, ...]
    folder: Path


def play(world: World, lie: Lie | None, directory: Path) -> Played:
    """Run the federation to its end. A run that breaks off raises."""
    live = HostileGrid(world, directory, lie)
    folder = run_on(live, live.run_config)
    run = folder.read("run.json") or {}
    scores = {key: value for key, value in (folder.read("scores.json") or {}).items() if "bytes" not in key}
    events = [json.loads(line) for line in (directory / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    named = [str(event["reason"]) for event in events if event["event"] == "failure" and SITE in (event["site"], _node_of(event))]
    notes = [str(event["text"]) for event in events if event["event"] == "note" and SITE in event["text"].split(":")[0]]
    notes += [str(event["text"]) for event in events if event["event"] == "note" and f"site {SITE} " in event["text"]]
    tensors = {name: sha256(data).hexdigest() for name, data in checkpoint_bytes(folder).items()}
    losses = [record["dev_loss"] for record in rounds(folder)]
    shared = {name: folder.read(name) for name in ("clusters.json", "overlap.json")}
    result = {
        "tensors": tensors,
        "best": run["best_round"],
        "rounds": run["rounds"],
        "scores": scores,
        "losses": losses,
        **shared,
    }
    return Played(result, (*named, *notes), directory)


def _node_of(event: Mapping[str, Any]) -> str:
    """The court, where the failure is of the node that it is on."""
    return SITE if "node 101" in f"{event['site']} {event['reason']}" else ""


def silent(request: Message) -> Message:
    """The reply of a site that could not."""
    return Message(Error(1, "the disk is full"), reply_to=request)


@cache
def without(world_changes: tuple[tuple[str, Any], ...], phase: str, number: int) -> Mapping[str, Any]:
    """The outcome where the court gave nothing in that phase and round; phase "": where it was honest."""
    with tempfile.TemporaryDirectory() as folder:
        lie = Lie(phase, number, instead=silent) if phase else None
        return play(world(*world_changes), lie, Path(folder) / "run").result
