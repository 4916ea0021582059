"""A site's leave for a run: one hash of bundle, run settings and text rules, the same at the server and at a site."""

import hashlib
import json
from collections.abc import Iterator

from fedlingua.config import Scalar, Settings
from fedlingua.corpora.rules import TextRules
from fedlingua.experiment import default_run_config

_SERVERS_OWN = {
    "places on its machine, and going on with a run": ("data-dir", "run-dir", "federation", "resume"),
    "whom it waits for": ("quorum", "below-quorum"),
    "how long it waits": ("wait-s", "deadline-s", "join-deadline-s", "evaluate-deadline-s", "finish-deadline-s"),
    "which replies it refuses": ("max-update-norm", "max-update-ratio", "max-bad-replies"),
    "a run that ends early": ("patience", "min-gain"),
    "what it keeps of what it has, and whom it shows that": ("keep-every", "track"),
}
CHANGES_WITHOUT_ASKING = tuple(key for keys in _SERVERS_OWN.values() for key in keys)
"""Keys that a site does not approve: nothing of them reaches what runs there or what leaves it. Text rules are approved by content, not by
the federation file's path. (Of config.MAY_CHANGE, keep-translations is approved: it costs a site time.)"""


def approval_hash(bundle: str, settings: Settings, rules: TextRules) -> str:
    """Of all that decides what a site does in a run. bundle: its hash. settings: as the server gives them, before the site's own file."""
    bound = {key: value for key, value in settings.flat().items() if key not in CHANGES_WITHOUT_ASKING}
    return hashlib.sha256(json.dumps([bundle, bound, rules.flat()], sort_keys=True).encode()).hexdigest()


def in_words(settings: Settings, rules: TextRules) -> Iterator[str]:
    """What a run does at a site, besides what it sends."""
    epochs = f"{settings.local_epochs} epoch(s) by {settings.optimizer}, learning rate {settings.step_learning_rate:g}"
    batch = f"{settings.tokens_per_batch} tokens" if settings.tokens_per_batch else f"{settings.batch_size} sentences"
    yield f"method {settings.method}: trains {settings.trained_set} of {settings.backbone}, averaged by {settings.how.clustering}"
    yield f"at most {settings.rounds} rounds of {epochs}, {settings.accumulation} x {batch} a step; selection {settings.selected_by}"
    scored = f"{settings.metrics} of {settings.score_split} at the end, beam {settings.beam}"
    yield f"measures the loss of {settings.evaluate_share:.0%} of dev every {settings.evaluate_every} round(s), and {scored}"
    split = rules.split
    yield f"text split by {split.mode}, key {split.key!r}, into {split.train:g} train, {split.dev:g} dev, {split.test:g} test"
    flat, plain = rules.flat(), TextRules().flat()
    other: dict[str, object] = {key: value for key, value in flat.items() if value != plain[key] and key[:6] != "split."}
    yield f"of the text besides: {_listed(other)}"
    defaults: dict[str, Scalar] = default_run_config()
    changed: dict[str, object] = {
        key: value for key, value in settings.flat().items() if value != defaults[key] and key not in CHANGES_WITHOUT_ASKING
    }
    yield f"settings other than the defaults: {_listed(changed)}"


def _listed(values: dict[str, object]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in values.items()) or "none"
