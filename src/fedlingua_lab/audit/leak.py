"""The leak suite: what a curious server could read from a round of a site, under each protection (docs/guides/privacy.md)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast

import numpy as np
from torch import Tensor, nn

from fedlingua.consent.limits import SiteLimits
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.training.translation import PairExample
from fedlingua_lab.audit import attacks
from fedlingua_lab.audit.attacks import Numbers
from fedlingua_lab.audit.retrained import Examples, Retrained
from fedlingua_lab.audit.subject import Protection

LINEAR = ("self_attn.v_proj.weight", ".down.weight", "lora_A.default.weight")
"""Suffixes of the names of linear layers whose gradient a subspace test can use, for the whole model, adapters and LoRA."""
Trial = tuple[Numbers, Examples, Examples]
"""(update, examples that trained it, others)"""


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


def leak_suite(again: Retrained, protections: Sequence[Protection], effort: Effort, note: Callable[[str], None]) -> list[Figure]:
    """Measure everything under each protection. note: called with a line of progress before each step."""
    figures = []
    for protection in protections:
        for attack in (membership, words, subspace, canaries):
            note(f"{protection.name}: {attack.__name__}")
            figures += attack(again, protection, effort)
    return figures


def _draws(again: Retrained, effort: Effort, size: int, number: int) -> Iterator[tuple[Mapping[str, Examples], str]]:
    """Yield for each trial (site -> a batch of its training text, name of the draw), the same under every protection."""
    for trial in range(number):
        draw = f"/leak/{size}/{trial}"
        rng = Random(f"{again.settings.seed}{draw}")
        yield {site: rng.sample(text[: max(size, effort.pool)], size) for site, text in again.training_texts.items()}, draw


def membership(again: Retrained, protection: Protection, effort: Effort) -> list[Figure]:
    """Distinguish sentences that the update was trained on from unseen sentences of the same site.

    A candidate's score is the cosine of the update with the optimizer's first step on its gradient at the received tensors. `detail` has
    the AUC of the cosine with the negative gradient itself.
    """
    site, rng = again.subject.site, Random(f"{again.settings.seed}/leak")
    unseen, figures = again.unseen[: effort.pool], []
    optimizer = "sgd" if protection.shares_noise else again.settings.optimizer
    least = min(SiteLimits.min_train, *map(len, again.training_texts.values()))
    cases = [("one sentence", 1, effort.single), ("batch of 8", 8, effort.trials)]
    cases += [(f"{least} sentences", least, max(1, effort.trials // 4)), ("a round", 0, 1)]
    for update, size, number in cases:
        trials: list[Trial] = []
        for batches, draw in _draws(again, effort, size, number) if size else ():
            others = rng.sample(unseen, min(len(unseen), effort.among - 1 if size == 1 else size))
            trials.append((again.seen(protection, batches, draw).change, batches[site], others))
        if not size:
            seen = again.seen(protection)
            if not seen.used:  # few private steps, which drew nobody
                continue
            distinct = list({id(example): example for example in seen.used}.values())
            trials.append((seen.change, rng.sample(distinct, min(effort.pool, len(distinct))), unseen))
        scored = _scored(again, trials, optimizer)
        value, low, high = attacks.auc(scored["step"])
        detail = {"gradient": attacks.auc(scored["gradient"], 1)[0]}
        if size == 1:
            first = sum(members[0] > others.max() for members, others in scored["step"])
            detail |= {"first": float(first), "trials": float(len(trials))}
        steps, most = again.steps(protection, 1.0 if size else again.settings.private_share), None
        if steps and steps.share >= 1 and steps.noise:  # of noise in shares only moments are known
            most = attacks.auc_bound(steps.noise, 1 if size else again.settings.local_epochs)
        figures.append(Figure("membership", update, protection.name, "AUC", value, 0.5, low, high, most, detail))
    return figures


def _scored(again: Retrained, trials: Sequence[Trial], optimizer: str) -> dict[str, list[tuple[Numbers, Numbers]]]:
    """Return score -> (scores of members, scores of others) of each trial. optimizer: What made the updates."""
    write_tensors(again.model, again.named(again.received(again.subject.site)))

    def score(change: Numbers, example: PairExample) -> tuple[float, float]:
        gradient = again.gradient(example)
        return attacks.cosine(change, -gradient), attacks.cosine(change, attacks.step_of(gradient, optimizer))

    scores = [[np.array([score(change, each) for each in side]).T for side in sides] for change, *sides in trials]
    return {name: [(members[n], others[n]) for members, others in scores] for n, name in enumerate(("gradient", "step"))}


def words(again: Retrained, protection: Protection, effort: Effort) -> list[Figure]:
    """Identify the words in the text by the embedding rows that moved, if the whole model is sent."""
    weight = cast(Tensor, again.model.get_input_embeddings().weight)
    name = next((name for name, each in again.model.named_parameters() if each is weight), "")
    if name not in again.chosen.names:
        return []
    figures = []
    for update, given in (("batch of 8", next(_draws(again, effort, 8, 1))), ("a round", ())):
        seen = again.seen(protection, *given)
        text = seen.used or again.training_texts[again.subject.site]
        tokens = [token for example in text for side in example for token in side]
        value, chance = _recall(attacks.word_scores(again.named(seen.change)[name]), tokens)
        figures.append(Figure("words", update, protection.name, "recall = precision", value, chance))
    return figures


def subspace(again: Retrained, protection: Protection, effort: Effort) -> list[Figure]:
    """Identify sentences, and with the whole model also tokens, by the span of the first encoder layer's gradient (DAGER; UTR of adapters).

    The update is one step of SGD, which is a multiple of the gradient and which sites refuse, and one step of the run's own optimizer.
    """
    first = (s.name for s in again.chosen.specs if s.part == "encoder" and s.layer == 0 and s.name.endswith(LINEAR))
    if (name := next(first, None)) is None:
        return []
    layer: nn.Module = again.model.get_submodule(name.rpartition(".")[0])
    site, rng, figures = again.subject.site, Random(f"{again.settings.seed}/leak/spans"), []
    unseen, whole = again.unseen[: effort.pool], name.endswith("v_proj.weight")
    for optimizer in dict.fromkeys(("sgd", again.settings.optimizer)):
        subject = replace(again.subject, settings=replace(again.settings, optimizer=optimizer))
        other = Retrained(subject, again.trainable, again.training_texts)
        for size, update in ((1, "one sentence"), (8, "batch of 8")):
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
                trials.append((scores[:size], scores[size:]))
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
    return _recall(-distances, [token for example in batch for token in example.source])


def _recall(scores: Numbers, tokens: Sequence[int]) -> tuple[float, float]:
    """Return the recall of a text's tokens by the scores of all, and chance."""
    present = np.isin(np.arange(len(scores)), tokens)
    return attacks.recall_at(scores, present), float(present.mean())


def canaries(again: Retrained, protection: Protection, effort: Effort) -> list[Figure]:
    """Plant sentences of random words in the site's text, train rounds, and rank each by its loss among others made in the same way.

    The sites of a sum start each round from its mean; without a sum, the site continues from its own tensors, as if it were alone.
    """
    site, rng = again.subject.site, Random(f"{again.settings.seed}/leak/canaries")
    text, planted, sentences = again.training_texts[site], effort.canaries, effort.alternatives + 1
    made = [_canary(text, rng) for _ in range(planted + effort.alternatives)]
    texts = {**again.training_texts, site: [*text, *made[:planted]]}
    begin = tensors = again.received(site)
    for number in range(1, effort.rounds + 1):
        later = Retrained(replace(again.subject, number=number), again.trainable, texts)
        tensors = tensors + later.seen(protection, draw="/leak", received=tensors).change
    falls = again.losses(begin, made) - again.losses(tensors, made)
    bits = float(np.mean([attacks.exposure(fall, falls[planted:]) for fall in falls[:planted]]))
    chance = float(np.mean([np.log2(sentences / rank) for rank in range(1, sentences + 1)]))
    update = f"{effort.rounds} round{'s' * (effort.rounds > 1)}"
    return [Figure("canaries", update, protection.name, "exposure, bits", bits, chance)]


def _canary(text: Examples, rng: Random) -> PairExample:
    """Make a pair of a text's pieces in random order: language token, as many pieces as a pair of the text has, end token."""
    like = rng.choice(text)
    sides = []
    for side in (0, 1):
        pieces = [piece for example in text for piece in example[side][1:-1]]
        sides.append([like[side][0], *rng.choices(pieces, k=len(like[side]) - 2), like[side][-1]])
    return PairExample(*sides)


def cell(figure: Figure) -> str:
    """Return a figure as a table shows it: the value with its interval, and what theory allows at most."""
    words = f"{figure.value:.2f}"
    if figure.low is not None and figure.high is not None:
        words += f" [{figure.low:.2f}, {figure.high:.2f}]"
    if "first" in figure.detail:
        words += f", first {figure.detail['first']:.0f} of {figure.detail['trials']:.0f}"
    return words if figure.most is None else f"{words}, at most {figure.most:.2f}"
