"""Accumulation of the gradient of one optimizer step, batch after batch, in pieces that fit into memory."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.precision import autocast
from fedlingua.common.errors import RunError
from fedlingua.privacy.clipping import Clipping
from fedlingua.settings.config import Settings
from fedlingua.training.batches import IGNORED, Example, pad
from fedlingua.training.head import HeadUse
from fedlingua.training.pieces import cut, pass_tokens

Step = Sequence[Sequence[Example]]
"""The batches of examples of one optimizer step."""
Sums = tuple[float | Tensor, int, int]
"""(nll_sum, predicted tokens, examples) of one batch; on a GPU nll_sum is a float64 tensor there."""


class StepGradient:
    """Adds the gradient of a step's mean loss to the parameters. The mean is over the tokens of the whole step, however its batches are
    cut. clipping: Makes the gradient the noised mean of the clipped gradients of sentences, or of batches if these are documents, within
    its `recording`; such a step may have no example.

    If a batch runs out of memory, it is halved and the step begins again. It is the same step except for dropout, which is drawn anew.
    From then on no batch has more padded tokens than that half.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        codec: Codec,
        settings: Settings,
        clipping: Clipping | None = None,
    ) -> None:
        self.model, self.codec, self.settings, self.clipping = model, codec, settings, clipping
        self.by_document = clipping is not None and clipping.steps.documents
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self.pass_tokens = pass_tokens(settings.micro_tokens, parameters, model.device.type)
        # A head that trains privately needs the slopes of whole sentences.
        whole = clipping is not None and not self.by_document and clipping.trains(model.get_output_embeddings().weight)
        self.use = HeadUse(-1 if whole else settings.head_chunk)
        self.most_tokens: int | None = None

    def __call__(self, step: Step) -> list[Sums]:
        """Return the sums of every batch or piece. On a GPU the nll stays there.

        Raises:
            RunError: A single example does not fit into memory.
        """
        tokens_of_step = sum(example.num_targets for batch in step for example in batch)
        while True:
            sums: list[Sums] = []
            failed = self._passed(step, tokens_of_step, sums)
            if failed is None:
                if self.clipping:
                    self.clipping.finish()
                return sums
            # Outside the handler: the error keeps the tensors of the failed pass alive.
            self._halve(failed)

    def _passed(self, step: Step, tokens_of_step: int, sums: list[Sums]) -> Sequence[Example] | None:
        """Make the step's passes and add their sums; return the batch at which memory ran out, if it did."""
        for part in [[document] for document in step] if self.by_document else [step]:
            for batch in self._cut(part):
                try:
                    sums.append(self._add(batch, tokens_of_step))
                except torch.OutOfMemoryError:
                    return batch
            if self.clipping and self.by_document:
                self.clipping.add_document(sum(example.num_targets for example in part[0]))
        return None

    def _add(self, batch: Sequence[Example], tokens_of_step: int) -> Sums:
        with autocast(self.model, self.settings.precision):
            padded = pad(batch, self.codec).to(self.model.device)
            nll, tokens = padded.nll(self.model, self.settings.label_smoothing, self.use)
        if self.clipping:
            nll.backward()
            if not self.by_document:
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
        for drawn in filter(None, step):
            lengths = [example.length[0] for example in drawn]
            for piece in cut(lengths, self.pass_tokens) if self.pass_tokens else [slice(None)]:
                batch = drawn[piece]
                size = len(batch) if self.most_tokens is None else max(1, self.most_tokens // _longest(batch))
                for first in range(0, len(batch), size):
                    yield batch[first : first + size]


def _longest(batch: Sequence[Example]) -> int:
    return max(example.length[0] for example in batch)
