"""Accumulation of the gradient of one optimiser step, batch after batch, in pieces that fit into memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.precision import autocast
from fedlingua.common.errors import RunError
from fedlingua.privacy.clipping import Clipping
from fedlingua.training.batches import IGNORED, Example, pad
from fedlingua.training.head import WHOLE, HeadUse
from fedlingua.training.pieces import cut
from fedlingua.training.process_group import ALONE, ProcessGroup, Sums

Step = Sequence[Sequence[Example]]
"""The batches of examples of one optimiser step."""


class StepGradient:
    """Adds the gradient of a step's mean loss to the parameters. The mean is over the tokens of the whole step, however its batches are
    cut or shared among a process group. pass_tokens: The fixed cost of a pass through the model, in tokens, by which batches are
    cut into pieces of similar length; 0: they are not cut. clipping: Makes the gradient the noised mean of the sentences' clipped
    gradients, within its `recording`; such a step may have no example.

    If a batch runs out of memory, it is halved and the step begins again. It is the same step except for dropout, which is drawn anew.
    From then on no batch has more padded tokens than that half.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        codec: Codec,
        precision: str,
        label_smoothing: float = 0.0,
        use: HeadUse = WHOLE,
        group: ProcessGroup = ALONE,
        pass_tokens: int = 0,
        clipping: Clipping | None = None,
    ) -> None:
        self.model, self.codec, self.precision = model, codec, precision
        self.label_smoothing, self.use, self.group, self.pass_tokens = label_smoothing, use, group, pass_tokens
        self.clipping = clipping
        if clipping and clipping.trains(model.get_output_embeddings().weight):
            self.use = replace(use, chunk=-1)  # a head that trains needs the slopes of whole sentences
        self.most_tokens: int | None = None

    def __call__(self, step: Step) -> list[Sums]:
        """Return the sums of every batch or piece, in a process group those of the whole step. On a GPU the nll stays there.

        Raises:
            RunError: A single example does not fit into memory.
        """
        tokens_of_step = sum(example.num_targets for batch in step for example in batch)
        while True:
            sums: list[Sums] = []
            failed = None
            for batch in self._cut(step):
                try:
                    sums.append(self._add(batch, tokens_of_step))
                except torch.OutOfMemoryError:
                    failed = batch
                    break
            if failed is None:
                if self.clipping:
                    self.clipping.finish()
                return self.group.add_up(self._trained, sums)
            # Outside the handler: the error keeps the tensors of the failed pass alive.
            self._halve(failed)

    @cached_property
    def _trained(self) -> list[nn.Parameter]:
        """The parameters that train. To look for them in a large model takes milliseconds, so it is done once."""
        return [each for each in self.model.parameters() if each.requires_grad]

    def _add(self, batch: Sequence[Example], tokens_of_step: int) -> Sums:
        with autocast(self.model, self.precision):
            padded = pad(batch, self.codec).to(self.model.device)
            nll, tokens = padded.nll(self.model, self.label_smoothing, self.use)
        if self.clipping:
            nll.backward()
            self.clipping.add(padded.labels != IGNORED)
        else:
            (nll / tokens_of_step).backward()
        # Fetching a number from a GPU would wait for it, batch after batch.
        return nll.detach().double() if nll.device.type == "cuda" else float(nll.detach()), tokens, len(batch)

    def _halve(self, batch: Sequence[Example]) -> None:
        longest = _longest(batch)
        if len(batch) == 1:
            raise RunError(
                f"a training step runs out of memory with a single example of {longest} tokens; give memory.gradient-checkpointing = true, "
                "memory.head-chunk = 64, smaller max-tokens, or a device with more memory"
            )
        self.most_tokens = (len(batch) + 1) // 2 * longest
        self.model.zero_grad(set_to_none=True)
        if self.clipping:
            self.clipping.clear()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _cut(self, step: Step) -> Iterator[Sequence[Example]]:
        for share in filter(None, map(self.group.share, step)):
            lengths = [example.length[0] for example in share]
            for piece in cut(lengths, self.pass_tokens) if self.pass_tokens else [slice(None)]:
                batch = share[piece]
                size = len(batch) if self.most_tokens is None else max(1, self.most_tokens // _longest(batch))
                for first in range(0, len(batch), size):
                    yield batch[first : first + size]


def _longest(batch: Sequence[Example]) -> int:
    return max(example.length[0] for example in batch)
