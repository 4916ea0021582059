"""The leak suite and its table: what a curious server could read from a round of a site, under each protection (docs/guides/privacy.md)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast

import numpy as np
from torch import Tensor, nn

from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.training.translation import PairExample
from fedlingua_lab.audit import attacks
from fedlingua_lab.audit.attacks import Numbers
from fedlingua_lab.audit.retrained import Examples, Retrained, Seen
from fedlingua_lab.audit.subject import Protection

LINEAR = ("self_attn.v_proj.weight", ".down.weight", "lora_A.default.weight")
"""Suffixes of the names of linear layers whose gradient a subspace test can use, for the whole model, adapters and LoRA."""
LEAST_SENTENCES = 50
"""Number of sentences that sites require behind every reply by default: `min-train` of fedlingua.consent.limits."""
Note = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How much an audit measures. trials: updates of a batch of 8; single: updates of one sentence, each among `among` candidates.

    canaries: planted sentences, each among `alternatives`; after `rounds` rounds. pool: most sentences of either side to draw from.
    """

    trials: int = 12
    single: int = 10
    among: int = 50
    canaries: int = 4
    alternatives: int = 63
    rounds: int = 3
    pool: int = 100


@dataclass(frozen=True)
class Figure:
    """One measured figure. measure: its name; low, high: its 95 % interval, or None; chance: its value if nothing leaks.

    most: the largest value that the theory of DP allows any attack, None if it gives no bound. detail: the figures behind it.
    """

    attack: str
    update: str
    protection: str
    measure: str
    value: float
    chance: float
    low: float | None = None
    high: float | None = None
    most: float | None = None
    detail: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Trial:
    seen: Seen
    members: Examples
    others: Examples


def leak_suite(again: Retrained, protections: Sequence[Protection], effort: Effort, note: Note) -> list[Figure]:
    """Measure everything under each protection. note: called with a line of progress before each step."""
    figures = []
    for protection in protections:
        for measured in (membership, words, spans, canaries):
            figures += measured(again, protection, effort, note)
    return figures


def _draws(again: Retrained, effort: Effort, size: int, number: int) -> Iterator[tuple[Mapping[str, Examples], str]]:
    """Yield for each trial (site -> a batch of its training text, name of the draw), the same under every protection."""
    for trial in range(number):
        rng = Random(f"{again.settings.seed}/leak/{size}/{trial}")
        batches = {site: rng.sample(text[: max(size, effort.pool)], size) for site, text in again.training_texts.items()}
        yield batches, f"/leak/{size}/{trial}"


def membership(again: Retrained, protection: Protection, effort: Effort, note: Note) -> list[Figure]:
    """Distinguish sentences that the update was trained on from unseen sentences of the same site.

    A candidate's score is the cosine of the update with the optimizer's first step on its gradient at the received tensors. `detail` has
    the AUCs of all scores, also of the cosine with the negative gradient itself and of the fall of the candidate's loss.
    """
    site, rng = again.subject.site, Random(f"{again.settings.seed}/leak")
    unseen, figures = again.unseen[: effort.pool], []
    least = min(LEAST_SENTENCES, *map(len, again.training_texts.values()))
    cases = [("one sentence", 1, effort.single), ("batch of 8", 8, effort.trials)]
    cases += [(f"{least} sentences", least, max(1, effort.trials // 4)), ("a round", 0, 1)]
    for update, size, number in cases:
        note(f"{protection.name}: membership, {update}")
        if size:
            others = min(len(unseen), effort.among - 1 if size == 1 else size)
            trials = [
                _Trial(again.seen(protection, batches, draw), batches[site], rng.sample(unseen, others))
                for batches, draw in _draws(again, effort, size, number)
            ]
        else:
            seen = again.seen(protection)
            distinct = list({id(example): example for example in seen.used}.values())
            trials = [_Trial(seen, rng.sample(distinct, min(effort.pool, len(distinct))), unseen)] if distinct else []
        if not trials:
            continue
        scored = _scored(again, trials, "sgd" if protection.shares_noise else again.settings.optimizer)
        areas = {name: float(np.mean([attacks.auc([trial], 1)[0] for trial in each])) for name, each in scored.items()}
        value, low, high = attacks.auc(scored["step"])
        detail = dict(areas)
        if size == 1:
            detail["first"] = float(sum(members[0] > others.max() for members, others in scored["step"]))
            detail["trials"] = float(len(trials))
        steps = again.steps(protection, 1.0 if size else again.settings.private_share)
        most = None
        if steps and steps.share >= 1 and steps.noise:  # of noise in shares only moments are known
            most = attacks.auc_bound(steps.noise, 1 if size else again.settings.local_epochs)
        figures.append(Figure("membership", update, protection.name, "AUC", value, 0.5, low, high, most, detail))
    return figures


def _scored(again: Retrained, trials: Sequence[_Trial], optimizer: str) -> dict[str, list[tuple[Numbers, Numbers]]]:
    """Return score -> (scores of members, scores of others) of each trial. optimizer: What made the updates."""
    before = again.received(again.subject.site)
    candidates = {id(example): example for trial in trials for example in (*trial.members, *trial.others)}
    scores: dict[str, list[dict[int, float]]] = {name: [{} for _ in trials] for name in ("gradient", "step")}
    write_tensors(again.model, again.named(before))
    for key, example in candidates.items():
        gradient = again.gradient(example)
        for name, direction in (("gradient", -gradient), ("step", attacks.step_of(gradient, optimizer))):
            for of, trial in zip(scores[name], trials, strict=True):
                of[key] = attacks.cosine(trial.seen.change, direction)
    pairs = {
        name: [
            (np.array([of[id(e)] for e in trial.members]), np.array([of[id(e)] for e in trial.others]))
            for of, trial in zip(by_trial, trials, strict=True)
        ]
        for name, by_trial in scores.items()
    }
    pairs["loss"] = []
    for trial in trials:
        both = [*trial.members, *trial.others]
        fall = again.losses(before, both) - again.losses(before + trial.seen.change, both)
        pairs["loss"].append((fall[: len(trial.members)], fall[len(trial.members) :]))
    return pairs


def words(again: Retrained, protection: Protection, effort: Effort, note: Note) -> list[Figure]:
    """Identify the words in the text by the embedding rows that moved, if the whole model is sent."""
    weight = cast(Tensor, again.model.get_input_embeddings().weight)
    name = next((name for name, each in again.model.named_parameters() if each is weight), "")
    if name not in again.chosen.names:
        return []
    figures, site = [], again.subject.site
    batches, draw = next(_draws(again, effort, 8, 1))
    for update, seen in (("batch of 8", again.seen(protection, batches, draw)), ("a round", again.seen(protection))):
        note(f"{protection.name}: words, {update}")
        text = seen.used or again.training_texts[site]
        present = np.zeros(weight.shape[0], bool)
        present[[number for example in text for number in (*example.source, *example.target)]] = True
        value = attacks.recall_at(attacks.word_scores(again.named(seen.change)[name]), present)
        figures.append(Figure("words", update, protection.name, "recall = precision", value, float(present.mean())))
    return figures


def spans(again: Retrained, protection: Protection, effort: Effort, note: Note) -> list[Figure]:
    """Identify sentences, and with the whole model also tokens, by the span of the first encoder layer's gradient (DAGER; UTR of adapters).

    The update is one step of SGD, which is a multiple of the gradient and which sites refuse, and one step of the run's own optimizer.
    """
    first = (s.name for s in again.chosen.specs if s.part == "encoder" and s.layer == 0 and s.name.endswith(LINEAR))
    if (name := next(first, None)) is None:
        return []
    layer: nn.Module = again.model.get_submodule(name.rpartition(".")[0])
    site, rng, figures = again.subject.site, Random(f"{again.settings.seed}/leak/spans"), []
    unseen, whole = again.unseen[: effort.pool], name.endswith("v_proj.weight")
    texts = again.training_texts
    for optimizer in dict.fromkeys(("sgd", again.settings.optimizer)):
        other = Retrained(replace(again.subject, settings=replace(again.settings, optimizer=optimizer)), again.trainable, texts)
        for size, update in ((1, "one sentence"), (8, "batch of 8")):
            note(f"{protection.name}: subspace test, {update}, {optimizer}")
            trials, recalls = [], []
            for batches, draw in _draws(other, effort, size, 3):
                rows = other.named(other.seen(protection, batches, draw).change)[name]
                batch, rank = batches[site], sum(len(example.source) for example in batches[site])
                write_tensors(other.model, other.named(other.received(site)))
                candidates = [example.source for example in (*batch, *rng.sample(unseen, min(len(unseen), 49)))]
                inputs = other.inputs(layer, candidates)
                distances = attacks.span_distances(np.concatenate(inputs), rows, rank)
                ends = np.cumsum([len(each) for each in inputs])[:-1]
                scores = -np.array([each.mean() for each in np.split(distances, ends)])
                trials.append((scores[: len(batch)], scores[len(batch) :]))
                if whole:
                    recalls.append(_token_recall(other, layer, rows, batch, rank))
            about = f"{update}, {optimizer}"
            value, low, high = attacks.auc(trials)
            figures.append(Figure("sentences by subspace", about, protection.name, "AUC", value, 0.5, low, high))
            if whole:
                value, chance = map(float, np.mean(recalls, axis=0))
                figures.append(Figure("tokens by subspace", about, protection.name, "recall = precision", value, chance))
    return figures


def _token_recall(again: Retrained, layer: nn.Module, rows: Numbers, batch: Examples, rank: int) -> tuple[float, float]:
    """Return the share of a batch's source tokens that the span names, and chance. All positions are tried, since inputs depend on them."""
    size, longest = len(cast(Tensor, again.model.get_input_embeddings().weight)), max(len(example.source) for example in batch)
    inputs = again.inputs(layer, [[token] * longest for token in range(size)])
    distances = attacks.span_distances(np.concatenate(inputs), rows, rank).reshape(size, longest).min(axis=1)
    present = np.zeros(size, bool)
    present[[token for example in batch for token in example.source]] = True
    return attacks.recall_at(-distances, present), float(present.mean())


def canaries(again: Retrained, protection: Protection, effort: Effort, note: Note) -> list[Figure]:
    """Plant sentences of random words in the site's text, train rounds, and rank each by its loss among others made in the same way.

    The sites of a sum start each round from its mean; without a sum, the site continues from its own tensors, as if it were alone.
    """
    note(f"{protection.name}: canaries, {effort.rounds} rounds")
    site, rng = again.subject.site, Random(f"{again.settings.seed}/leak/canaries")
    text = again.training_texts[site]
    made = [_canary(text, rng) for _ in range(effort.canaries + effort.alternatives)]
    planted, alternatives = made[: effort.canaries], made[effort.canaries :]
    texts = {**again.training_texts, site: [*text, *planted]}
    begin = tensors = again.received(site)
    for number in range(1, effort.rounds + 1):
        later = Retrained(replace(again.subject, number=number), again.trainable, texts)
        tensors = tensors + later.seen(protection, draw="/leak", received=tensors).change
    falls = again.losses(begin, made) - again.losses(tensors, made)
    bits = [attacks.exposure(fall, falls[effort.canaries :]) for fall in falls[: effort.canaries]]
    chance = float(np.mean([np.log2((len(alternatives) + 1) / rank) for rank in range(1, len(alternatives) + 2)]))
    update = f"{effort.rounds} round{'s' * (effort.rounds > 1)}"
    detail = {"most": float(np.log2(len(alternatives) + 1))}
    return [Figure("canaries", update, protection.name, "exposure, bits", float(np.mean(bits)), chance, detail=detail)]


def _canary(text: Examples, rng: Random) -> PairExample:
    """Make a pair of a text's pieces in random order: language token, as many pieces as a pair of the text has, end token."""
    like = rng.choice(text)
    sides = []
    for side in (0, 1):
        pieces = [piece for example in text for piece in example[side][1:-1]]
        sides.append([like[side][0], *rng.choices(pieces, k=len(like[side]) - 2), like[side][-1]])
    return type(like)(*sides)


WHAT = {
    "membership": "tell a sentence of the update from an unseen one",
    "words": "name the words of the text",
    "tokens by subspace": "name the source tokens of the batch",
    "sentences by subspace": "tell a sentence of the batch from an unseen one, by subspace",
    "canaries": "rank a planted sentence among others",
}
"""Attack -> what a server that succeeds can do, in words for people."""


def lines_of(figures: Sequence[Figure]) -> dict[str, list[list[str]]]:
    """Return a mapping of what a server can do, in words, to a line for each update and protection, as a terminal shows it."""
    lines: dict[str, list[list[str]]] = {}
    attacks, updates = list(WHAT), list(dict.fromkeys(each.update for each in figures))
    for each in sorted(figures, key=lambda figure: (attacks.index(figure.attack), updates.index(figure.update))):
        line = [each.update, each.protection, each.measure, cell(each), f"{each.chance:.2f}"]
        lines.setdefault(WHAT[each.attack], []).append(line)
    return lines


def cell(figure: Figure) -> str:
    """Return a figure as a table shows it: the value with its interval, and what theory allows at most."""
    words = f"{figure.value:.2f}"
    if figure.low is not None and figure.high is not None:
        words += f" [{figure.low:.2f}, {figure.high:.2f}]"
    if "first" in figure.detail:
        words += f", first {figure.detail['first']:.0f} of {figure.detail['trials']:.0f}"
    return words if figure.most is None else f"{words}, at most {figure.most:.2f}"
