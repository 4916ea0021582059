"""Which layers a run has, and in which order.

From the server's method down to the wire, and at a site from training down to the wire:

- drawn sites first: who is asked decides what everything below it is about.
- the buffer: what an older update counts is about all that is left of it on the way up.
- norm clipping, then the judging of updates: on the way up an update is judged as it came, and clipped as it was judged.
- differential privacy before anything that chooses or codes numbers: its cost is in the ledger before a byte leaves, and what comes
  below reads noised numbers alone.
- selection, then codes: only what is sent is coded.
- masks last at the site and first at the server: nothing can be read of numbers under them.
- held tensors last: whatever the others have put into a request is named by hash if the site has it.
"""

from fedlingua.layers.bounded_updates import JudgedUpdates, NormClip
from fedlingua.layers.buffer import Buffer
from fedlingua.layers.codes import Codes
from fedlingua.layers.drawn_sites import DrawnSites
from fedlingua.layers.held_tensors import HeldTensors
from fedlingua.layers.layer import Layer, Layers
from fedlingua.layers.private_training import PrivateTraining
from fedlingua.layers.secure_sum import SecureSums
from fedlingua.layers.selection import SelectedTensors
from fedlingua.settings.config import Settings


def layers_of(settings: Settings) -> Layers:
    """Return the layers of a run; the same at the server and at every site."""
    if not settings.how.travels:
        return Layers(settings, [])
    payloads: dict[tuple[str, str], bytes] = {}
    selects = settings.selected_by != "all"
    layers: dict[Layer, object] = {
        DrawnSites(settings): settings.sites_per_round,
        Buffer(settings): settings.async_buffer,
        NormClip(settings): settings.aggregation == "norm-clip",
        JudgedUpdates(settings): settings.max_update_ratio and not settings.sums_securely,
        PrivateTraining(settings): settings.trains_privately,
        SelectedTensors(settings): selects,
        Codes(settings, payloads, selects): {settings.code_up.method, settings.code_down.method} != {"none"},
        SecureSums(settings): settings.sums_securely,
        HeldTensors(settings, payloads): True,
    }
    return Layers(settings, [layer for layer, is_on in layers.items() if is_on])
