"""Train a round again as a site trained it, with the nodes' own training code, and return what the server sees of it.

A site's update follows from the tensors that it received, its text and the seed, so it can be made again if all three are here.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import RunError
from fedlingua.corpora.split import Split
from fedlingua.exchange.coding.change import encode_change
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.privacy.accounting import noise_for
from fedlingua.privacy.clipping import PrivateSteps
from fedlingua.privacy.noise_shares import planned
from fedlingua.settings.schedules import rate_share
from fedlingua.training.accumulate import Step
from fedlingua.training.batches import Example, pad
from fedlingua.training.head import WHOLE, HeadUse
from fedlingua.training.loop import train_locally
from fedlingua.training.objective import corpus_gradient, token_nlls_of_each
from fedlingua.training.optimizers import Numbers
from fedlingua.training.translation import PairExample, encode_pairs
from fedlingua_lab.audit.subject import Protection, Subject

Examples = Sequence[PairExample]
MEMORY = 2**30
"""Most bytes of gradients that are in memory at once."""


@dataclass(frozen=True)
class Seen:
    """What the server sees of a round. change: (d,) float32, part after part. used: the audited site's examples that trained it."""

    change: Numbers
    used: Examples


class Retrained:
    """Trains rounds of a subject's sites again; all tensors are flat, (d,) float32, the set's parts end to end.

    texts: site -> training text, if it differs from the subject's.
    """

    def __init__(self, subject: Subject, trainable: Trainable, texts: Mapping[str, Examples] | None = None) -> None:
        self.subject, self.trainable, self.settings = subject, trainable, subject.settings
        self.model, self.codec, self.chosen = trainable.model, trainable.backbone.codec, trainable.tensor_set
        self.training_texts = texts or {site: self.examples(site, "train") for site in subject.texts}
        self._gradients: dict[int, tuple[PairExample, Numbers]] = {}
        torch.set_num_threads(self.settings.threads)

    def flat(self, tensors: Mapping[str, Numbers]) -> Numbers:
        """Join named tensors into a flat array; missing ones are 0."""
        whole = {spec.name: tensors.get(spec.name, np.zeros(spec.shape, np.float32)) for spec in self.chosen.specs}
        return np.concatenate(list(join(whole, self.chosen).values()))

    def named(self, flat: Numbers) -> Joined:
        """Return a flat array's tensors by name."""
        return Joined({part: flat[where] for part, where in self.places.items()}, self.chosen)

    @cached_property
    def places(self) -> Mapping[Part, slice]:
        """Part -> the slice with its numbers."""
        sizes = {part: sum(self.chosen.sizes_of(part)) for part in PARTS}
        ends = dict(zip(sizes, np.cumsum(list(sizes.values())), strict=True))
        return {part: slice(int(ends[part]) - size, int(ends[part])) for part, size in sizes.items() if size}

    def received(self, site: str) -> Numbers:
        """Return the tensors that a site trained the round from."""
        start = self.subject.start
        return self.flat(start.federated(site, self.trainable) if start else self.trainable.sent_first)

    def examples(self, site: str, *splits: Split) -> list[PairExample]:
        """Return the sentence pairs of a site's splits as examples."""
        return [
            example
            for text in self.subject.texts[site].values()
            for split in splits
            for example in encode_pairs(text.splits[split], text.direction, self.codec, self.settings.max_tokens)
        ]

    @cached_property
    def unseen(self) -> list[PairExample]:
        """The audited site's dev and test as examples."""
        return self.examples(self.subject.site, "dev", "test")

    def steps(self, protection: Protection, share: float) -> PrivateSteps | None:
        """Return the private steps of a run with the protection's epsilon, without noise if that is in shares; None without epsilon."""
        how = self.settings
        if protection.shares_noise:
            return PrivateSteps(share, how.dp_clip, 0.0, {})
        noise = noise_for(protection.epsilon, how.dp_delta, share, how.rounds * how.local_epochs) if protection.epsilon else 0.0
        return PrivateSteps(share, how.dp_clip, noise) if noise else None

    def train(
        self, site: str, protection: Protection, batch: Examples | None = None, draw: str = "", received: Numbers | None = None
    ) -> Seen:
        """Train a site's round, or on a batch alone, and return its change and the examples in it.

        If sites make noise in shares, the sum of clipped gradients stands for the change.

        Args:
            batch: Examples for one step if there are at most 8, else for steps of the run's batch size. None: the site's whole round.
            draw: Added to the seed, for trials that differ; empty: the run's own.
            received: Where training starts; None: where the run's round did.

        Raises:
            RunError: The round is not the one that the run trained.
        """
        how, number, texts = self.settings, self.subject.number, self.training_texts[site]
        before, share = self.received(site) if received is None else received, how.private_share
        write_tensors(self.model, self.named(before))
        if batch is not None:
            size = len(batch) if len(batch) <= 8 else how.batch_size
            how = replace(how, local_epochs=1, sample_least=0, sample_share=0.0, whole_steps=False)
            how = replace(how, batch_size=size, accumulation=1, tokens_per_batch=0)
            texts, share = list(batch), 1.0
        private, used = self.steps(protection, share), list[PairExample]()

        def note(step: Step) -> None:
            used.extend(example for part in step for example in part if isinstance(example, PairExample))

        names, seed, this_round = self.trainable.trained.names, f"{how.seed}/{site}/{number}{draw}", (number, how.rounds)
        result = train_locally(
            self.model, names, [texts], self.codec, how, seed, before_step=note, this_round=this_round, private=private
        )
        if private and private.sums is not None:
            return Seen(self.flat({name: each.cpu().numpy() for name, each in private.sums.items()}), used)
        loss, written = result.nll_sum / max(1, result.num_tokens), self.subject.train_loss
        repeats = site == self.subject.site and not draw and not private
        if repeats and written is not None and not np.isclose(written, loss, rtol=1e-4):
            raise RunError(
                f"round {number} of site {site}, trained again, has a loss of {loss:.6f}; the run had {written:.6f}: its text, the "
                "code or a library is another now. Run it again, then audit the new run"
            )
        return Seen(self._sent(site, before, self.flat(read_tensors(self.model, self.chosen)), protection), used)

    def _sent(self, site: str, before: Numbers, after: Numbers, protection: Protection) -> Numbers:
        """Return the change as the server receives it: coded as in the run, but exact in a secure sum, whose rounding is fine."""
        code = self.settings.code_up
        if protection.sites > 1 or code.is_exact:
            return after - before
        decoded = np.empty_like(after)
        for part, where in self.places.items():
            draws, shapes = generator_of(self.settings.seed, self.subject.number, site, part), self.chosen.shapes_of(part)
            decoded[where] = encode_change(before[where], after[where], None, shapes, code, draws).numbers
        return decoded - before

    def seen(
        self,
        protection: Protection,
        batches: Mapping[str, Examples] | None = None,
        draw: str = "",
        received: Numbers | None = None,
    ) -> Seen:
        """Return what the server sees of a round of the site: its change, or for each part the mean over the sites of the sum.

        batches: site -> the batch that it makes one step on; None: each trains its round. draw, received: As in `train`.
        """
        groups = {part: self.subject.group(part, protection) for part in self.places}
        sites = dict.fromkeys(site for group in groups.values() for site in group)
        by_site = {site: self.train(site, protection, batches[site] if batches else None, draw, received) for site in sites}
        changes = {part: [by_site[site].change[self.places[part]] for site in group] for part, group in groups.items()}
        if protection.shares_noise:
            parts = self._with_noise(changes, groups, batches or self.training_texts, protection)
        else:
            parts = [np.mean(each, axis=0) for each in changes.values()]
        return Seen(np.concatenate(parts), by_site[self.subject.site].used)

    def _with_noise(
        self,
        sums: Mapping[Part, Sequence[Numbers]],
        groups: Mapping[Part, tuple[str, ...]],
        texts: Mapping[str, Examples],
        protection: Protection,
    ) -> list[Numbers]:
        """Return each part's change by the sites' sums of clipped gradients, to each of which its share of the noise is added."""
        settings = replace(self.settings, dp_epsilon=protection.epsilon)
        clusters = {part: {"sum": group} for part, group in groups.items()}
        noise = planned(settings, clusters, self.chosen, max(map(len, self.training_texts.values())))
        share = rate_share(settings.schedule, self.subject.number - 1, settings.rounds, settings.warmup_steps)
        rate, changes = settings.step_learning_rate * share, list[Numbers]()
        for part, each in sums.items():
            total = np.sum([noise[part].levels(own, os.urandom(32)) for own in each], axis=0)
            sentences = sum(len(texts[site]) for site in groups[part])
            changes.append(noise[part].change(noise[part].group.reduced(total), rate, sentences))
        return changes

    def gradient(self, example: PairExample) -> Numbers:
        """Return the gradient of an example's mean loss at the tensors that the site received, which the model must hold."""
        if known := self._gradients.get(id(example)):
            return known[1]
        batch = pad([example], self.codec).to(self.model.device)
        gradient = self.flat(corpus_gradient(self.model, self.chosen.names, [batch])[2])
        if gradient.nbytes * (len(self._gradients) + 1) <= MEMORY:
            self._gradients[id(example)] = example, gradient
        return gradient

    def losses(self, tensors: Numbers, examples: Examples) -> Numbers:
        """Return each example's loss in nats a token, (examples,), of the model with these tensors."""
        write_tensors(self.model, self.named(tensors))
        nll, tokens = nll_of_each(self.model, self.codec, examples, self.settings.precision)
        return nll / tokens

    @torch.no_grad()
    def inputs(self, layer: nn.Module, ids: Sequence[Sequence[int]]) -> list[Numbers]:
        """Return the inputs of an encoder layer for each source, (len, d), without dropout."""
        caught: list[Numbers] = []
        hook = layer.register_forward_pre_hook(lambda _, given: caught.extend(given[0].float().cpu().numpy()))
        self.model.eval()
        for _, alike in groupby(ids, len):
            self.model.get_encoder()(input_ids=torch.tensor([list(row) for row in alike], device=self.model.device))
        hook.remove()
        return caught


def nll_of_each(
    model: PreTrainedModel, codec: Codec, examples: Sequence[Example], precision: str, use: HeadUse = WHOLE
) -> tuple[Numbers, Numbers]:
    """Return (nll_sum, number of predicted tokens) of each example, both (examples,) float64, in order, without dropout.

    The sums over all examples are those of `examples_nll` except for rounding.
    """
    nlls = token_nlls_of_each(model, codec, examples, precision, use)
    return np.array([each.sum() for each in nlls]), np.array([float(len(each)) for each in nlls])
