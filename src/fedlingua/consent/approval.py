"""A site's approval of a run: one hash of bundle, run settings and text rules, the same at the server and at a site."""

import re
from collections.abc import Mapping

from fedlingua.common import units
from fedlingua.common.files import json_hash
from fedlingua.corpora.rules import TextRules
from fedlingua.exchange import protocol
from fedlingua.exchange.tensors import TensorSet
from fedlingua.selection.second_filter import SIZE
from fedlingua.settings.codes import AUTO
from fedlingua.settings.config import Settings
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING

MASKED = (
    " as whole numbers under masks, of which the server learns the sum over a cluster alone; under masks over all sites also sums of loss, "
    "tokens, sentences, steps, and how many numbers were cut"
)
_CONDITION = re.compile(r"(?<=[a-z]), (?:[^:,;]* alone|the same)(?=: )")
"""Says under which settings a reply is sent; a run that is approved has them."""
ADDED_UP = "; all of this as numbers under masks, of which the server learns the sum over all sites alone"


def approval_hash(bundle: str, settings: Settings, rules: TextRules) -> str:
    """Hash everything that determines what a site does in a run; text rules by content, not by the federation file's path.

    bundle: the bundle's hash. settings: as the server gives them, before the site's own file changes any.
    """
    bound = {key: value for key, value in settings.flat().items() if key not in CHANGES_WITHOUT_ASKING}
    return json_hash([bundle, bound, rules.flat()])


def rules_hash(rules: TextRules) -> str:
    """Hash text rules by content, as `approval_hash` does."""
    return json_hash(rules.flat())


def sends(settings: Settings, tensors: TensorSet | None) -> Mapping[str, str]:
    """Return message type -> everything that a reply contains; with `tensors`, also the size of those that travel."""
    sent, adapters = dict(protocol.SENT_BY_A_SITE), " and ".join(settings.signature_adapters.values())
    if settings.overlap == "off":
        del sent[protocol.DIGESTS], sent[protocol.LEAKS]
    if settings.how.clustering != "gradients":
        del sent[protocol.SIGNATURE]
    elif settings.signature_form == "private":
        sent[protocol.SIGNATURE] = (
            f"once a run: {settings.signature_dim} noised numbers for each of {adapters}, made of its gradient"
        )
    else:
        sent[protocol.SIGNATURE] = (
            f"once a run, if this site's file allows it: the raw gradient of {adapters}, out of which text can be read"
        )
    if settings.chooses and not settings.trains_privately:
        sent[protocol.FINISH] += protocol.CHOICE_SENT
    update = protocol.TRAIN
    if settings.has_two_phases:
        update = protocol.SEND
        del sent[protocol.TRAIN]
        if settings.learns_threshold:
            sent[protocol.EVALUATE] += "; loss, tokens and seconds of some dev batches, and one number of the threshold's slope"
        if settings.second_filter:
            sent[protocol.EVALUATE] += f", {SIZE} of the second filter's"
    else:
        del sent[protocol.PROBE], sent[protocol.SEND]
    if settings.sums_securely:
        sent[protocol.TRAIN] = sent[protocol.TRAIN].replace("; sums of loss, tokens, sentences, steps, seconds", MASKED)
    else:
        del sent[protocol.KEYS], sent[protocol.SHARES], sent[protocol.UNMASK]
    if settings.sums_scores:
        for kind in (protocol.EVALUATE, protocol.FINISH):
            sent[kind] += ADDED_UP
    if settings.trains_privately:
        sent[protocol.TRAIN] = sent[protocol.TRAIN].replace("sums of loss, tokens, sentences, steps", "sums of steps")
    sent[update] = sent[update].replace("the tensors that travel", _update(settings, tensors))
    if not settings.how.trains:
        del sent[update]
    of_another_task = protocol.OF_MASKED if settings.task == "translation" else protocol.OF_TRANSLATIONS
    sent[protocol.FINISH] = sent[protocol.FINISH].replace(of_another_task, "")
    return {kind: _CONDITION.sub("", words, count=1) for kind, words in sent.items()}


def _update(settings: Settings, tensors: TensorSet | None) -> str:
    """Describe the part of the trained tensors that leaves the site."""
    if not settings.how.travels:
        return f"no tensors under {settings.method}"
    what = "the tensors that travel"
    if tensors:
        what += f" ({len(tensors.specs)} tensors, {_size(settings, tensors)})"
    if settings.sums_securely and settings.rule != "all":
        what = f"of {what} those that the server names, the same for all sites of a cluster"
    if settings.selected_by != "all":
        what = f"of {what} what {settings.selected_by} takes, and which that is"
        if settings.by_deviation and not settings.has_two_phases:
            what += "; every tensor's relative change, and the threshold"
    if settings.layers:
        what += f", once the bundle's layers = {settings.layers!r} have changed them, and what else these add"
    return what


def _size(settings: Settings, tensors: TensorSet) -> str:
    """Describe how many numbers tensors have, and the bytes that these take as they travel."""
    number, code = tensors.num_parameters, settings.code_up
    if settings.sums_securely:
        each = 3 if settings.shares_noise else 2  # fewer if the cluster has few sites, which only the server knows
        return f"{number} numbers of {each} bytes at most, {units.data(each * number)}"
    if code.method == "none":
        return f"{number} numbers of 4 bytes, {units.data(4 * number)}"
    name = AUTO if settings.send_code == "auto" else settings.send_code
    return f"{number} numbers as {name}, about {units.data(code.most_bytes([spec.shape for spec in tensors.specs]))} at most"
