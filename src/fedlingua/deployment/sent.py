"""All that a site sends under a run's settings, told before it joins; a message that asks for anything else is refused."""

from collections.abc import Mapping

from fedlingua.config import Settings
from fedlingua.exchange.trainable import Trainable
from fedlingua.protocol import DIGESTS, EVALUATE, LEAKS, PROBE, SEND, SENT_BY_A_SITE, SIGNATURE, TRAIN
from fedlingua.selection.second_filter import SIZE


def sends(settings: Settings, trainable: Trainable | None) -> Mapping[str, str]:
    """message type -> all that a reply of it holds, with the bytes of the tensors where they are known."""
    told = dict(SENT_BY_A_SITE)
    if settings.overlap == "off":
        del told[DIGESTS], told[LEAKS]
    if settings.how.clustering != "gradients":
        del told[SIGNATURE]
    elif settings.signature_form == "private":
        told[SIGNATURE] = f"once a run: {settings.signature_dim} noised numbers, made of the gradient of one adapter"
    else:
        told[SIGNATURE] = (
            "once a run, if this site's file allows it: the raw gradient of one adapter, out of which text can be read"
        )
    update = TRAIN
    if settings.learns_threshold:
        update = SEND
        del told[TRAIN]
        if not settings.meta_frozen:
            told[EVALUATE] += "; loss, tokens and seconds of some dev batches, and one number of the threshold's slope"
        if settings.second_filter:
            told[EVALUATE] += f", {SIZE} of the second filter's"
    else:
        del told[PROBE], told[SEND]
    told[update] = told[update].replace("the tensors that travel", _update(settings, trainable))
    if not settings.how.trains:
        del told[update]
    return told


def _update(settings: Settings, trainable: Trainable | None) -> str:
    """What leaves the site of what it trains."""
    if not settings.how.travels:
        return f"no tensors under {settings.method}"
    what = "the tensors that travel"
    if trainable:
        chosen = trainable.tensor_set
        size = (
            f"{len(chosen.specs)} tensors, {chosen.num_parameters} numbers of 4 bytes, {4 * chosen.num_parameters / 1e6:.2f} MB"
        )
        what += f" ({size})"
    if settings.selected_by != "all":
        what = f"of {what} what {settings.selected_by} takes, and which that is"
        if settings.by_deviation and not settings.learns_threshold:
            what += "; every tensor's relative change, and the threshold"
    return what
