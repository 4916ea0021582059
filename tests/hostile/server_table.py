"""A hostile server against a deployed site: what it may send, and what the site's own file and log make of it.

A real ClientApp, a site file whose limits are the defaults, a corpus of 270 pairs in a file, a small model, and Flower's own messages.
Where a limit is to be shown, a careless site has even approved the hostile settings.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from clients.client_app import app as client_app
from fedlingua.common.languages import Direction
from fedlingua.consent.approval import approval_hash
from fedlingua.consent.bundle import BUNDLE
from fedlingua.consent.site_file import SITE_FILE
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SplitRules
from fedlingua.desk.cli.site import make_overlap_key
from fedlingua.desk.deployment.audited import verify
from fedlingua.desk.deployment.site_setup import approve
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task, Threshold
from fedlingua.exchange.records import pack, to_record
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import KEYS
from fedlingua_demo import phrasebook
from tests.hostile.attacks import Attack, Outcome

TITLE = "A hostile server against a site file with default limits"
GOOD_BUNDLE, OTHER_BUNDLE = "1" * 64, "2" * 64
DIRECTIONS = (Direction("de", "fr"), Direction("pl", "fr"))
RULES = TextRules(SplitRules("shared-side", "k", 0.6, 0.2, 0.2), directions=DIRECTIONS)
RUNS = count(1000)


@cache
def _backbone() -> Path:
    """Directory of an M2M-100 with random weights, once for all rows."""
    directory = Path(tempfile.mkdtemp(prefix="fedlingua-hostile-")) / "tiny"
    sentences = [sentence for lines in phrasebook.base_corpus(200, 1).values() for sentence in lines]
    tokenizer = build_tokenizer(sentences, phrasebook.LANGUAGES, 300, directory)
    size = ModelSize(d_model=16, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=32, vocab_size=300, max_positions=64)
    build_model(size, tokenizer, seed=7).save_pretrained(directory)
    return directory


@cache
def _corpus() -> str:
    """270 pairs, no two of them alike."""
    text = phrasebook.register_corpus("hospital", 270, 5)
    return "".join(f"{text['de'][n]} {n}\t{text['fr'][n]} {n}\n" for n in range(270))


@cache
def _trainable(tensor_set: str) -> Trainable:
    """What a run begins with; of the backbone, which all of them share."""
    given = settings(backbone=str(_backbone()), tensor_set=tensor_set)
    return build_trainable(settings_from(given))


def settings(**changes: Any) -> dict[str, Any]:
    """A whole run config that an honest server would send, with a hostile one's changes: `local_epochs=2`."""
    honest = {
        "backbone": "tiny",
        "adapter.dim": 4,
        "batch-size": 8,
        "beam": 1,
        "rounds": 2,
        "max-tokens": 32,
        "max-decode-tokens": 8,
        "method": "adapter-families",
        "learning-rate": 0.001,
    }
    return {
        **default_run_config(),
        "keep.choose": False,
        "send.code": "none",
        **honest,
        **{KEYS.get(key, key): value for key, value in changes.items()},
    }


class Site:
    """A hospital's folder, and what a server can do to it. node: lines of [node]; limits: of [limits], where there are any."""

    def __init__(self, folder: Path, node: str = "", limits: str = "") -> None:
        self.folder, self.flower_run = folder, next(RUNS)
        (folder / "corpus.tsv").write_text(_corpus())
        site = '[[site]]\nname = "hospital"\ndirection = "de-fr"\ntsv = "corpus.tsv"\n'
        server = f'[server]\naddress = "server:9092"\ninsecure = true\n[node]\n{node}\n'
        table = f"[limits]\n{limits}\n" if limits else ""
        (folder / "site.toml").write_text(f'{site}{server}{table}[backbones]\ntiny = "{_backbone()}"\n')

    def approve(self, config: Mapping[str, Any], rules: TextRules = RULES) -> None:
        """As somebody at the site who agrees to everything."""
        approve(self.folder / "approved.txt", approval_hash(GOOD_BUNDLE, settings_from(config), rules))

    def ask(self, kind: str, config: Mapping[str, Any], number: int = 0, **how: Any) -> Message:
        """Send one message. how: site, run, attempt, rules, arrays, bundle, flower_run, more (other records), task (instead of its own)."""
        task = Task(how.get("site", "hospital"), how.get("run", "9f1c"), how.get("attempt", 1), number)
        content = RecordDict({protocol.RULES: ConfigRecord(how.get("rules", RULES).flat())})
        if kind != protocol.DESCRIBE:
            content[protocol.TASK] = ConfigRecord(how.get("task", task.request()))
            content[protocol.ARRAYS] = how.get("arrays", ArrayRecord())
        for name, record in how.get("more", {}).items():
            content[name] = record
        for name in how.get("without", ()):
            del content[name]
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        message = Message(content, dst_node_id=1, message_type=kind)
        message.metadata.__dict__["_message_id"] = message.object_id
        arrived = message_from_proto(message_to_proto(message))
        flower_run = how.get("flower_run", self.flower_run)
        node = {SITE_FILE: str(self.folder / "site.toml")}
        before = os.environ.pop(BUNDLE, None)
        try:
            if bundle := how.get("bundle", GOOD_BUNDLE):
                os.environ[BUNDLE] = bundle
            return client_app(arrived, Context(flower_run, 1, node, RecordDict(), dict(config)))
        finally:
            os.environ.pop(BUNDLE, None)
            if before is not None:
                os.environ[BUNDLE] = before

    def trainable(self, config: Mapping[str, Any]) -> Trainable:
        """What trains under the settings, in memory of the server's."""
        return _trainable(str(config["tensor-set"]))

    def tensors(self, config: Mapping[str, Any], plus: float = 0.0) -> ArrayRecord:
        """What a run begins with, moved a little."""
        trainable = self.trainable(config)
        moved = {name: (tensor + plus).astype(np.float32) for name, tensor in trainable.sent_first.items()}
        return pack(moved, trainable.tensor_set)

    def refused(self, reply: Message, why: str) -> Outcome:
        """Held: an error in these words, which stands in the log under a chain that is whole."""
        said = str(reply.error.reason) if reply.has_error() else "answered"
        lines, broken = verify(self.folder / "state")
        logged = bool(lines) and not broken and lines[-1]["refused"] == said and not lines[-1]["bytes"]
        return Outcome(reply.has_error() and why in said and logged, said.splitlines()[0])

    def same(self, first: Message, again: Message) -> Outcome:
        """Held: both were answered, by the same bytes, and the log says that nothing was done anew."""
        if first.has_error() or again.has_error():
            return Outcome(False, str((first if first.has_error() else again).error.reason))
        lines, broken = verify(self.folder / "state")
        equal = first.content.object_id == again.content.object_id
        return Outcome(equal and not broken and bool(lines[-1].get("repeated")), "answered with the bytes of before")


# --- Settings beyond the limits, in the first message ---------------------------------------------------------------------------


def beyond(why: str, folder: Path, limits: str = "", **changes: Any) -> Outcome:
    """Settings that the site does not work under, though somebody there has approved them."""
    site, config = Site(folder, limits=limits), settings(**changes)
    site.approve(config)
    return site.refused(site.ask(protocol.DESCRIBE, config), why)


BEYOND: dict[str, tuple[str, dict[str, Any]]] = {
    "all tensors under a method of adapters": (
        "[limits] tensor-sets",
        {"limits": 'methods = ["adapter-families"]', "tensor_set": "full"},
    ),
    "a method of the full model": ("[limits] tensor-sets", {"method": "model-fed"}),
    "a selection's method of the full model": ("[limits] tensor-sets", {"method": "metasend-g"}),
    "another method than the site takes part in": (
        "[limits] methods",
        {"limits": 'methods = ["adapter-families"]', "method": "adapter-fed"},
    ),
    "another selection than the site takes part in": (
        "[limits] selections",
        {"limits": 'selections = ["all"]', "send.rule": "top-k"},
    ),
    "a gradient by SGD at rate 1 in one step": (
        "[limits] optimizers",
        {"optimizer": "sgd", "learning_rate": 1.0, "batch_size": 170},
    ),
    "SGD as Adam with a large epsilon": ("[limits] max-optimizer-epsilon", {"optimizer_epsilon": 1e6}),
    "SGD as Adam, by gradients clipped to next to nothing": ("[limits] min-clip-norm", {"clip_norm": 1e-9}),
    "SGD as Adam, by a tiny scale of LoRA": ("[limits] min-lora-alpha", {"tensor_set": "lora", "lora_alpha": 1e-6}),
    "SGD as Adam, by a tiny scale of LoRA below 0": ("[limits] min-lora-alpha", {"tensor_set": "lora", "lora_alpha": -1e-6}),
    "sentences cut to four tokens": ("[limits] min-max-tokens", {"max_tokens": 4}),
    "a pull that leaves of an update its first step": ("[limits] max-pull", {"pull": 1e6}),
    "a weight decay that leaves of an update its last step": ("[limits] max-weight-decay", {"weight_decay": 1e9}),
    "a client of the server's choice, where limits alone decide": (
        "[limits] settings",
        {"limits": 'settings = "within-limits"', "client": "os:getcwd"},
    ),
    "a layer of the server's choice, where limits alone decide": (
        "[limits] settings",
        {"limits": 'settings = "within-limits"', "layers": "os:getcwd"},
    ),
    "epochs 1e9": ("[limits] max-local-epochs", {"local_epochs": 10**9}),
    "rounds 1e9": ("[limits] max-rounds", {"rounds": 10**9}),
    "beam 1e6": ("[limits] max-beam", {"beam": 10**6}),
    "threads 1e4": ("[limits] max-threads", {"threads": 10**4}),
    "adapter.dim 1e9": ("[limits] max-adapter-dim", {"adapter_dim": 10**9}),
    "lora.rank 1e9": ("[limits] max-lora-rank", {"tensor_set": "lora", "lora_rank": 10**9}),
    "controllers 1e6": ("[limits] max-controllers", {"tensor_set": "controllers", "controllers": 10**6}),
    "meta.neurons 1e9": ("[limits] max-meta-neurons", {"send.rule": "metasend-l", "meta_neurons": 10**9}),
    "signature.dim 1e9": ("[limits] max-signature-dim", {"signature_dim": 10**9}),
    "max-tokens 1e6": ("[limits] max-tokens", {"max_tokens": 10**6}),
    "max-decode-tokens 1e6": ("[limits] max-decode-tokens", {"max_decode_tokens": 10**6}),
    "batch-size 1e9": ("[limits] max-batch-size", {"batch_size": 10**9}),
    "tokens-per-batch 1e9": ("[limits] max-tokens-per-batch", {"tokens_per_batch": 10**9}),
    "keep-translations 1e6": ("[limits] max-keep-translations", {"keep_translations": 10**6}),
    "COMET with a checkpoint of the server's": (
        "[limits] comet-models",
        {"metrics": "bleu,chrf,comet", "comet_model": "/tmp/theirs.ckpt"},
    ),
    "COMET of 1.2 GB": ("[limits] comet-models", {"metrics": "bleu,chrf,comet"}),
    "a backbone of the server's": ("[backbones]", {"backbone": "somebody/else"}),
    "a backbone by its path": ("[backbones]", {"backbone": "/etc"}),
    "a backbone by the name of a folder": ("[backbones]", {"backbone": "src"}),
    "a backbone of the site's cache": ("[backbones]", {"backbone": "tatoeba-half"}),
    "a built-in backbone at a revision": ("[backbones]", {"backbone": "demo", "backbone_revision": "0" * 40}),
    "10^8 sentences drawn a round": ("[limits] max-sample-least", {"sample_least": 10**8}),
    "a million times its text drawn a round": ("[limits] max-sample-share", {"sample_share": 1e6}),
    "all sites' text in one place": ("which only a simulation can", {"method": "centralized-model"}),
}


# --- Text and steps that tell too much, approved by a careless site --------------------------------------------------------------


def careless(why: str, kind: str, folder: Path, rules: TextRules = RULES, node: str = "", **changes: Any) -> Outcome:
    """What was approved and still tells too much."""
    site, config = Site(folder, node), settings(**changes)
    site.approve(config, rules)
    trains = kind in (protocol.TRAIN, protocol.PROBE)
    arrays = site.tensors(config) if trains else ArrayRecord()
    return site.refused(site.ask(kind, config, int(trains), rules=rules, arrays=arrays), why)


def ruled(table: str, **changes: Any) -> TextRules:
    """The honest rules with some other values of a table."""
    flat = RULES.flat()
    return TextRules.from_flat({**flat, **{f"{table}.{key}": value for key, value in changes.items()}})


GRADIENTS = {"method": "adapter-gradients", "signature_form": "private"}
RESTS = {"whole_steps": False}
"""What does not fill a step is one of its own."""
CARELESS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one sentence of the server's choice, to train on": (
        "[limits] min-train",
        protocol.TRAIN,
        {"rules": TextRules.from_flat({**ruled("sizes", train=1, dev=1, test=1).flat(), "split.key": "chosen"})},
    ),
    "one sentence of the server's choice, to answer for": (
        "[limits] min-train",
        protocol.EVALUATE,
        {"rules": TextRules.from_flat({**ruled("sizes", train=1, dev=1, test=1).flat(), "split.key": "chosen"})},
    ),
    "sizes of 1 of dev alone": ("[limits] min-dev", protocol.EVALUATE, {"rules": ruled("sizes", dev=1)}),
    "train cut to one": ("[limits] min-train", protocol.TRAIN, {"rules": ruled("limits", train=1)}),
    "test cut to one": ("[limits] min-test", protocol.FINISH, {"rules": ruled("limits", test=1)}),
    "dev cut to 49, in the first question": ("[limits] min-dev", protocol.DESCRIBE, {"rules": ruled("limits", dev=49)}),
    "shares that leave next to no dev": (
        "[limits] min-dev",
        protocol.EVALUATE,
        {"rules": ruled("split", train=0.7, dev=0.05, test=0.25)},
    ),
    "one sentence drawn a round": ("[limits] min-train", protocol.TRAIN, {"sample_least": 1}),
    "a thousandth drawn a round": ("[limits] min-train", protocol.TRAIN, {"sample_share": 0.001}),
    "a hundredth of dev": ("[limits] min-dev", protocol.EVALUATE, {"evaluate_share": 0.01}),
    "a slope on one sentence": (
        "[limits] min-dev",
        protocol.EVALUATE,
        {"send.rule": "metasend-l", "meta_batches": 1, "meta_batch_size": 1},
    ),
    "all text in one step of Adam": ("[limits] min-steps", protocol.TRAIN, {"batch_size": 170}),
    "all text in one step by accumulation": ("[limits] min-steps", protocol.TRAIN, {"accumulation": 10**6}),
    "all text in one step by tokens": ("[limits] min-steps", protocol.TRAIN, {"tokens_per_batch": 65536}),
    "steps of one sentence": ("[limits] min-batch", protocol.TRAIN, {"batch_size": 1}),
    "steps of a few tokens": ("[limits] min-batch", protocol.TRAIN, {"tokens_per_batch": 32}),
    # of 154 sentences; in each of these the usual step has enough
    "a last step of one sentence": ("steps on 1 (smallest), 9 (usual)", protocol.TRAIN, {"batch_size": 9, **RESTS}),
    "a last step of one sentence, before training": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.DESCRIBE,
        {"batch_size": 9, **RESTS},
    ),
    "a last step of four sentences": ("steps on 4 (smallest), 25 (usual)", protocol.TRAIN, {"batch_size": 25, **RESTS}),
    "a last step of seven sentences": ("steps on 7 (smallest), 21 (usual)", protocol.TRAIN, {"batch_size": 21, **RESTS}),
    "a last step of one sentence in every pass": (
        "steps on 1 (smallest), 17 (usual)",
        protocol.TRAIN,
        {"batch_size": 17, "local_epochs": 3, **RESTS},
    ),
    "one sentence left over by accumulated batches": (
        "steps on 1 (smallest), 51 (usual)",
        protocol.TRAIN,
        {"batch_size": 17, "accumulation": 3, **RESTS},
    ),
    "a rest of the sentences drawn": (
        "steps on 5 (smallest), 8 (usual)",
        protocol.TRAIN,
        {"sample_share": 0.5, **RESTS},
    ),
    "a rest of the sentences drawn with replacement": (
        "steps on 1 (smallest), 10 (usual)",
        protocol.TRAIN,
        {"sample_least": 101, "sample_replacement": True, "batch_size": 10, **RESTS},
    ),
    "a step on the longest sentences by tokens": (
        "steps on 4 (smallest), 9 (usual)",
        protocol.TRAIN,
        {"tokens_per_batch": 300},
    ),
    "a step on the shortest sentences by tokens": (
        "steps on 5 (smallest), 18 (usual)",
        protocol.TRAIN,
        {"tokens_per_batch": 600},
    ),
    "accumulated batches by tokens, the last by itself": (
        "steps on 6 (smallest), 18 (usual)",
        protocol.TRAIN,
        {"tokens_per_batch": 200, "accumulation": 3},
    ),
    "a last step of one sentence in a probe": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.PROBE,
        {"send.rule": "metasend-l", "meta_batches": 32, "batch_size": 9, **RESTS},
    ),
    "a last step of one sentence under masks": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.TRAIN,
        {"privacy_sum": "secure", "batch_size": 9, **RESTS},
    ),
    "a last step of one sentence of a selection": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.TRAIN,
        {"send.rule": "top-k", "batch_size": 9, **RESTS},
    ),
    "a last step of one sentence in four bits": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.TRAIN,
        {"send.code": "4bit", "batch_size": 9, **RESTS},
    ),
    "a last step of one sentence with a last phase": (
        "steps on 1 (smallest), 9 (usual)",
        protocol.TRAIN,
        {"keep.choose": True, "batch_size": 9, **RESTS},
    ),
    "one step of a probe": (
        "[limits] min-steps",
        protocol.PROBE,
        {"send.rule": "metasend-l", "meta_batches": 32, "batch_size": 170},
    ),
    "mixed text": ("which only a simulation can", protocol.DESCRIBE, {"rules": ruled("split", mixed=True)}),
    "a split over all sites' text": ("in one place", protocol.DESCRIBE, {"rules": ruled("split", mode="components")}),
    "overlap compared without a key": ("names none", protocol.DIGESTS, {"overlap": "remove"}),
    "a raw gradient as signature": ("raw gradients", protocol.SIGNATURE, {**GRADIENTS, "signature_form": "raw"}),
    "a signature with next to no noise": ("max-epsilon", protocol.SIGNATURE, {**GRADIENTS, "signature_noise": 0.001}),
    "a signature where the run has none": ("a run with these settings has", protocol.SIGNATURE, {}),
    "digests where the run compares nothing": ("a run with these settings has", protocol.DIGESTS, {}),
    "leaks where the run compares nothing": ("a run with these settings has", protocol.LEAKS, {}),
    "a whole update where a threshold chooses": (
        "a run with these settings has",
        protocol.TRAIN,
        {"send.rule": "metasend-l"},
    ),
    "a probe where no threshold chooses": ("a run with these settings has", protocol.PROBE, {}),
    "what is sent of a probe, where there is none": ("a run with these settings has", protocol.SEND, {}),
    "training where the method has none": ("a run with these settings has", protocol.TRAIN, {"method": "base"}),
}


# --- Other than was approved --------------------------------------------------------------------------------------------------------


def not_approved(folder: Path, **how: Any) -> Outcome:
    """The site has approved the honest run; something is changed since."""
    site, config = Site(folder), settings()
    site.approve(config)
    first = site.ask(protocol.DESCRIBE, config)
    if first.has_error():
        return Outcome(False, str(first.error.reason))
    config |= {KEYS.get(key, key): value for key, value in how.pop("changes", {}).items()}
    return site.refused(site.ask(protocol.DESCRIBE, config, **{"flower_run": 1, **how}), "has not approved")


OTHER: dict[str, dict[str, Any]] = {
    "another learning rate than was approved": {"changes": {"learning_rate": 0.1}},
    "another seed than was approved": {"changes": {"seed": 1}},
    "more epochs than were approved, within the limits": {"changes": {"local_epochs": 3}},
    "another selection than was approved": {"changes": {"send.rule": "top-k"}},
    "more sentences translated than was approved": {"changes": {"keep_translations": 3}},
    "another key of the split than was approved": {"rules": ruled("split", key="chosen")},
    "other directions than were approved": {"rules": TextRules(RULES.split, directions=DIRECTIONS[:1])},
    "less cleaning than was approved": {"rules": ruled("cleaning", min_words=1)},
    "another bundle than was approved": {"bundle": OTHER_BUNDLE},
    "no bundle, past the gate": {"bundle": ""},
}


# --- Questions that are not to be asked ---------------------------------------------------------------------------------------------


def asked(why: str, kind: str, number: int, folder: Path, **how: Any) -> Outcome:
    """One message of an approved run that cannot be."""
    site, config = Site(folder), settings(**how.pop("changes", {}))
    site.approve(config)
    return site.refused(site.ask(kind, config, number, **how), why)


TASK = Task("hospital", "9f1c", 1, 1).request()
RULED_WRONG = ConfigRecord({**RULES.flat(), "split.train": -5.0, "split.dev": 5.8})
ASKED: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "round 3 of 2": ("asked about round 3; the run has 2", protocol.TRAIN, 3, {}),
    "round -1": ("asked about round -1", protocol.EVALUATE, -1, {}),
    "attempt 1000": ("[limits] max-attempts", protocol.TRAIN, 1, {"attempt": 1000}),
    "attempt 0": ("[limits] max-attempts", protocol.TRAIN, 1, {"attempt": 0}),
    "a pull that the run has not": (
        "asked for proximal-mu = 1e+30; the run has pull = 0",
        protocol.TRAIN,
        1,
        {"more": {protocol.CONFIG: ConfigRecord({protocol.PROXIMAL_MU: 1e30})}},
    ),
    "no pull where the run has one": (
        "asked for proximal-mu = 0; the run has pull = 0.1",
        protocol.TRAIN,
        1,
        {"changes": {"pull": 0.1}},
    ),
    "no pull beside a Flower strategy where the run has one": (
        "asked for proximal-mu = 0; the run has pull = 0.1",
        protocol.TRAIN,
        1,
        {"changes": {"pull": 0.1, "strategy": "flwr.serverapp.strategy:FedMedian"}},
    ),
    "a learning rate that the run has not": (
        "asked for learning-rate = 0.5 in a round; a run without a strategy of its own has the same in all",
        protocol.TRAIN,
        1,
        {"more": {protocol.CONFIG: ConfigRecord({"learning-rate": 0.5})}},
    ),
    "text rules whose shares are below 0": ("ConfigError", protocol.DESCRIBE, 0, {"more": {protocol.RULES: RULED_WRONG}}),
    "a signature in a round": ("before the first one only", protocol.SIGNATURE, 1, {"changes": GRADIENTS}),
    "digests in a round": ("before the first one only", protocol.DIGESTS, 1, {"changes": {"overlap": "remove"}}),
    "leaks in a round": ("before the first one only", protocol.LEAKS, 2, {"changes": {"overlap": "remove"}}),
    "keys of secure sums in a round": ("before the first one only", protocol.KEYS, 1, {"changes": {"privacy.sum": "secure"}}),
    "an unknown site": ("this node hosts hospital", protocol.TRAIN, 1, {"site": "court"}),
    "a site's name that leads elsewhere": ("this node hosts hospital", protocol.TRAIN, 1, {"site": "../hospital"}),
    "a run's name that leads elsewhere": ("ConfigError", protocol.TRAIN, 1, {"run": "../../etc"}),
    "a run's name of a megabyte": ("OSError", protocol.EVALUATE, 1, {"run": "x" * 10**6}),
    "a task without a round": (
        "is not that of this version",
        protocol.TRAIN,
        1,
        {"task": {key: value for key, value in TASK.items() if key != "round"}},
    ),
    "no task at all": ("is not that of this version", protocol.TRAIN, 1, {"without": [protocol.TASK]}),
    "no text rules": ("ConfigError", protocol.TRAIN, 1, {"without": [protocol.RULES]}),
    "the slope of a threshold where there is none": (
        "the run learns none",
        protocol.EVALUATE,
        0,
        {"more": {protocol.THRESHOLD: ConfigRecord(Threshold(0.5).request())}},
    ),
    "tensors that are no numbers": (
        "ExchangeError",
        protocol.TRAIN,
        1,
        {"arrays": to_record({"encoder": np.full(3, np.nan, np.float32)})},
    ),
    "own tensors that the site never trained": (
        "own tensors 0005-1",
        protocol.EVALUATE,
        1,
        {"task": Task("hospital", "9f1c", 1, 1, (5, 1)).request()},
    ),
}


def second(
    why: str,
    one: tuple[str, int],
    two: tuple[str, int],
    folder: Path,
    plus: float = 0.0,
    changes: Mapping[str, Any] | None = None,
    rules: TextRules = RULES,
    first: Mapping[str, Any] | None = None,
    **how: Any,
) -> Outcome:
    """Two messages: an honest one is answered, and then comes another. Either setting has been approved."""
    site, config = Site(folder), settings(**(first or {}))
    later = {**config, **(changes or {})}
    site.approve(config)
    site.approve(later, rules)
    begins = site.ask(one[0], config, one[1], arrays=site.tensors(config))
    if begins.has_error():
        return Outcome(False, str(begins.error.reason))
    again = site.ask(two[0], later, two[1], arrays=site.tensors(config, plus), rules=rules, **how)
    return site.refused(again, why) if why else site.same(begins, again)


TRAIN_1, TRAIN_2 = (protocol.TRAIN, 1), (protocol.TRAIN, 2)
IN_ANOTHER = {"plus": 0.01, "flower_run": 1}
EVALUATE_1, FINISH_1 = (protocol.EVALUATE, 1), (protocol.FINISH, 1)
SECOND: dict[str, tuple[str, tuple[str, int], tuple[str, int], dict[str, Any]]] = {
    "the same training again, to average": ("", TRAIN_1, TRAIN_1, {}),
    "the same evaluation again": ("", EVALUATE_1, EVALUATE_1, {}),
    "the same scores again": ("", FINISH_1, FINISH_1, {}),
    "the same private signature again, to average its noise away": (
        "",
        (protocol.SIGNATURE, 0),
        (protocol.SIGNATURE, 0),
        {"first": GRADIENTS},
    ),
    "other tensors in the same round of training": ("answered once", TRAIN_1, TRAIN_1, {"plus": 0.01}),
    "other tensors in the same round of training, in another Flower run": (
        "it began in Flower run",
        TRAIN_1,
        TRAIN_1,
        IN_ANOTHER,
    ),
    "the same training in another Flower run": ("it began in Flower run", TRAIN_1, TRAIN_1, {"flower_run": 1}),
    "other tensors in the same evaluation": ("answered once", EVALUATE_1, EVALUATE_1, {"plus": 0.01}),
    "other tensors to be scored again": ("answered once", FINISH_1, FINISH_1, {"plus": 0.01}),
    "scores of another round": ("answered once", FINISH_1, (protocol.FINISH, 2), {}),
    "a round that is over": ("is already at 2", TRAIN_2, TRAIN_1, {}),
    "training after the end": ("is already at 3", FINISH_1, TRAIN_2, {}),
    "an evaluation after the end": ("is already at 3", FINISH_1, (protocol.EVALUATE, 2), {}),
    "a dev loss besides training, and another before it": (
        "a later one was asked for already",
        EVALUATE_1,
        TRAIN_2,
        {"task": Task("hospital", "9f1c", 1, 2, measure=1).request()},
    ),
    "a dev loss of a round to come": (
        "is not that of this version",
        TRAIN_1,
        TRAIN_2,
        {"task": {**Task("hospital", "9f1c", 1, 2).request(), "measure": 2}},
    ),
    "attempts counted up in one run": ("another attempt '2'", TRAIN_1, TRAIN_1, {"attempt": 2}),
    "another run's name in one run": ("another run 'a'", TRAIN_1, TRAIN_1, {"run": "a"}),
    "text rules that change between rounds, both approved": (
        "another approval",
        TRAIN_1,
        TRAIN_2,
        {"rules": ruled("split", key="chosen")},
    ),
    "settings that change between rounds, both approved": (
        "another approval",
        TRAIN_1,
        TRAIN_2,
        {"changes": {"learning-rate": 0.1}},
    ),
    "dev text that was trained on": ("another approval", TRAIN_1, EVALUATE_1, {"rules": ruled("split", key="other")}),
    "who are you, under other rules of the same run": (
        "another approval",
        TRAIN_1,
        (protocol.DESCRIBE, 0),
        {"rules": ruled("cleaning", min_words=3)},
    ),
}


def one_run_too_many(folder: Path) -> Outcome:
    """A new run for every question: the site answers in so many altogether."""
    site, config = Site(folder), settings()
    site.approve(config)
    for number in range(200):
        (folder / "state" / "answers" / f"{number}").mkdir(parents=True)
    return site.refused(site.ask(protocol.TRAIN, config, 1, arrays=site.tensors(config)), "[limits] max-runs")


def other_rules_within_limits(folder: Path) -> Outcome:
    """Where limits alone decide: the same text split by another key, so that the difference tells who is in it."""
    site, config = Site(folder, limits='settings = "within-limits"'), settings()
    first = site.ask(protocol.DESCRIBE, config)
    if first.has_error():
        return Outcome(False, str(first.error.reason))
    return site.refused(
        site.ask(protocol.DESCRIBE, config, rules=ruled("split", key="other"), flower_run=1), "keeps its first ones"
    )


def unknown_key(folder: Path) -> Outcome:
    """A run config that no version of ours has."""
    site = Site(folder)
    return site.refused(site.ask(protocol.DESCRIBE, {**settings(), "obey": True}), "ConfigError")


def sent_before_probed(folder: Path) -> Outcome:
    """The update of a probe that there has not been."""
    site, config = Site(folder), settings(selection="metasend-l", meta_batches=32)
    site.approve(config)
    threshold = {protocol.THRESHOLD: ConfigRecord(Threshold(0.5).request())}
    return site.refused(site.ask(protocol.SEND, config, 1, more=threshold), "own tensors 0001-1")


def everything_leaks(folder: Path) -> Outcome:
    """All of a site's dev sentences are said to be trained on elsewhere, so that one is left to answer for."""
    make_overlap_key(folder / "overlap.key")
    site, config = Site(folder, 'overlap-key = "overlap.key"'), settings(overlap="remove")
    site.approve(config)
    digests = site.ask(protocol.DIGESTS, config)
    if digests.has_error():
        return Outcome(False, str(digests.error.reason))
    found = digests.content.array_records[protocol.ARRAYS]
    leaking = to_record({protocol.LEAKING: np.sort(found[protocol.digests_name("dev", "de")].numpy())[1:]})
    return site.refused(site.ask(protocol.LEAKS, config, arrays=leaking), "[limits] min-dev")


def one_leak_more(folder: Path, limits: str = "", later: Mapping[str, Any] | None = None, **another: Any) -> Outcome:
    """In another attempt or run one sentence more is said to leak: the difference of two dev losses would be that sentence's. later:
    Settings that change in between, where limits alone decide."""
    make_overlap_key(folder / "overlap.key")
    site, config = Site(folder, 'overlap-key = "overlap.key"', limits), settings(overlap="remove")
    if not limits:
        site.approve(config)
    digests = site.ask(protocol.DIGESTS, config)
    if digests.has_error():
        return Outcome(False, str(digests.error.reason))
    found = np.sort(digests.content.array_records[protocol.ARRAYS][protocol.digests_name("dev", "de")].numpy())
    lists = [to_record({protocol.LEAKING: found[:number]}) for number in (0, 1)]
    site.ask(protocol.LEAKS, config, arrays=lists[0])
    again = site.ask(protocol.LEAKS, {**config, **(later or {})}, arrays=lists[1], flower_run=1, **another)
    return site.refused(again, "other leaks than before")


def a_leak_in_other_bytes(folder: Path) -> Outcome:
    """The bytes of one hash that leaks, as two numbers of 32 bits, which are no sentence's hash."""
    make_overlap_key(folder / "overlap.key")
    site, config = Site(folder, 'overlap-key = "overlap.key"'), settings(overlap="remove")
    site.approve(config)
    leaking = to_record({protocol.LEAKING: np.array([1], np.uint64).view(np.uint32)})
    return site.refused(site.ask(protocol.LEAKS, config, arrays=leaking), "wanted a row of uint64")


def _attacks() -> dict[str, Callable[[Path], Outcome]]:
    plays: dict[str, Callable[[Path], Outcome]] = {}
    plays |= {name: partial(beyond, why, **how) for name, (why, how) in BEYOND.items()}
    plays |= {name: partial(careless, why, kind, **how) for name, (why, kind, how) in CARELESS.items()}
    plays |= {name: partial(not_approved, **how) for name, how in OTHER.items()}
    plays |= {name: partial(asked, why, kind, number, **how) for name, (why, kind, number, how) in ASKED.items()}
    plays |= {name: partial(second, why, one, two, **how) for name, (why, one, two, how) in SECOND.items()}
    plays["a run more than the site answers in"] = one_run_too_many
    plays["a key that there is not"] = unknown_key
    plays["an update that was never probed"] = sent_before_probed
    plays["all dev sentences said to leak"] = everything_leaks
    plays["a leak more in another attempt"] = partial(one_leak_more, attempt=2)
    within: dict[str, Any] = {"limits": 'settings = "within-limits"', "later": {"seed": 1}}
    plays["a leak more under another seed, where limits alone decide"] = partial(one_leak_more, run="another", **within)
    plays["other text rules, where limits alone decide"] = other_rules_within_limits
    plays["a leak whose bytes are those of two numbers"] = a_leak_in_other_bytes
    plays["a leak more in another run"] = partial(one_leak_more, run="another")
    return plays


ATTACKS = [Attack(name, play) for name, play in _attacks().items()]
