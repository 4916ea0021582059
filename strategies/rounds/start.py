"""`start-from`: the first round of a run begins with the tensors that another run's last round stored."""

from pathlib import Path

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ExchangeError, RunError
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.state import ClusterTensors
from fedlingua.exchange.tensors import NamedTensors, TensorSet, check_tensors
from fedlingua.exchange.updates import Sent
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings
from strategies.aggregation.mean import mean


def start_from(
    settings: Settings, folder: RunFolder, tensor_set: TensorSet, clusters: Clusters
) -> tuple[ClusterTensors, list[str]]:
    """Return the tensors of the run's clusters, each the other run's cluster of the same name, or the mean of all; and what is from where.

    Raises:
        RunError: The other run stored no tensors, or not those of this run's backbone and tensor set.
    """
    other, here = RunFolder(Path(settings.start_from).expanduser()), f"start-from = {settings.start_from!r}"
    checkpoint, reasons = other.checkpoints.newest_good()
    if checkpoint is None:
        raise RunError(f"{here}: it has no good checkpoint ({'; '.join(reasons) or 'there is none'}); give another run")
    theirs, ours = ((each.read("run.json") or {}).get("backbone") or {} for each in (other, folder))
    if theirs.get("fingerprint") != ours.get("fingerprint"):
        raise RunError(
            f"{here}: its backbone, {theirs.get('name')!r}, is not the same as {ours.get('name')!r}; give the run's own"
        )
    tensors, notes = dict[Part, dict[str, NamedTensors]](), [f"starts from {other.directory}, round {checkpoint.number}"]
    numbered = settings.how.clustering in ("random", "gradients")  # the same name means nothing
    for part in PARTS:
        of_part, tensors[part] = tensor_set.in_part(part), {}
        try:
            stored = {name: check_tensors(each, of_part) for name, each in checkpoint.tensors[part].items()}
            if of_part.specs and not stored:
                raise ExchangeError(f"there are no {part} tensors")
        except ExchangeError as error:
            raise RunError(f"{here}: {error}; give a run of the same backbone and added layers") from error
        for cluster in clusters[part] if of_part.specs else ():
            among = [cluster] if cluster in stored and not numbered else [*stored]
            sent = [Sent(1 / len(among), stored[name]) for name in among]
            tensors[part][cluster] = Joined(join(mean(stored[among[0]], sent), of_part), of_part)
            notes.append(f"{part} cluster {cluster} starts from {', '.join(among)}")
    return tensors, notes
