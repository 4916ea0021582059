"""Which layers a run has, and in which order.

Before the strategy is made, text is compared, as clusters are made by the gradients on what is left of it. Then, from the server's method
down to the wire, and at a site from training down to the wire:

- drawn sites first: who is asked decides what everything below it is about.
- the buffer: what an older update counts is about all that is left of it on the way up.
- norm clipping, then the judging of updates: on the way up an update is judged as it came, and clipped as it was judged.
- differential privacy before anything that chooses or codes numbers: its cost is in the ledger before a byte leaves, and what comes
  below reads noised numbers alone.
- layers of one's own (`layers`): above all that chooses, codes or masks, so that they see a whole update in float32, on the way down
  before it is cut, on the way up once it is whole again; below differential privacy, so that they see noised numbers.
- selection, then codes: only what is sent is coded.
- masks last at the site and first at the server: nothing can be read of numbers under them.
- held tensors last: whatever the others have put into a request is named by hash if the site has it.
"""

from collections.abc import Mapping

from fedlingua.layers import gradient_clusters, overlap, probe, secure_site
from fedlingua.layers.bounded_updates import JudgedUpdates, NormClip
from fedlingua.layers.buffer import Buffer
from fedlingua.layers.codes import Codes
from fedlingua.layers.drawn_sites import DrawnSites
from fedlingua.layers.gradient_clusters import GradientClusters
from fedlingua.layers.held_tensors import HeldTensors
from fedlingua.layers.layer import Answer, Layer, Layers
from fedlingua.layers.overlap import Overlap
from fedlingua.layers.own import OwnLayers
from fedlingua.layers.private_training import PrivateTraining
from fedlingua.layers.probe import LearnedThreshold
from fedlingua.layers.secure_sum import SecureSums
from fedlingua.layers.selection import SelectedTensors
from fedlingua.settings.config import Settings

MESSAGES: Mapping[str, Answer] = {
    **overlap.MESSAGES,
    **gradient_clusters.MESSAGES,
    **probe.MESSAGES,
    **secure_site.MESSAGES,
}
"""Message type -> the answer of the layer whose own it is."""


def layers_of(settings: Settings) -> Layers:
    """Return the layers of a run; the same at the server and at every site."""
    payloads: dict[tuple[str, str], bytes] = {}
    selects = settings.selected_by != "all"
    layers: dict[Layer, object] = {
        Overlap(settings): settings.overlap != "off" and not settings.how.pooled,
        GradientClusters(settings): settings.how.clustering == "gradients",
    }
    if settings.how.travels:
        layers |= {
            DrawnSites(settings): settings.sites_per_round,
            Buffer(settings): settings.async_buffer,
            NormClip(settings): settings.aggregation == "norm-clip",
            JudgedUpdates(settings): settings.max_update_ratio and not settings.sums_securely,
            PrivateTraining(settings): settings.trains_privately,
            OwnLayers(settings): settings.layers,
            LearnedThreshold(settings): settings.learns_threshold,
            SelectedTensors(settings): selects,
            Codes(settings, payloads, selects): {settings.code_up.method, settings.code_down.method} != {"none"},
            SecureSums(settings): settings.sums_securely,
            HeldTensors(settings, payloads): True,
        }
    return Layers(settings, [layer for layer, is_on in layers.items() if is_on])
