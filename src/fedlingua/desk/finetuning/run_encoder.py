"""Which encoder of a run fine-tuning would begin with; refused, where there is none, before anything is loaded."""

from pathlib import Path

from fedlingua.common.errors import RunError
from fedlingua.common.languages import nearest
from fedlingua.exchange.delivery import is_delivered
from fedlingua.runs.completed import CompletedRun
from fedlingua.runs.folder import RunFolder


def encoder_run(run: Path, site: str | None) -> tuple[CompletedRun, str]:
    """The run, and the site whose encoder it is; site: needed where sites end with different ones.

    Raises:
        RunError: no such run or site, one that is not completed, trained nothing, or no encoder; sites with different ones, and none
            named.
    """
    finished = CompletedRun.of(run)
    folder, settings = finished.folder, finished.settings
    if settings.task != "masked-language":
        raise RunError(f"{run}: task = {settings.task!r} trains no encoder; wanted a run with task = 'masked-language'")
    if not settings.how.trains:
        raise RunError(
            f"{run}: method {settings.method} trains nothing; give its backbone itself with --encoder {settings.backbone}"
        )
    if settings.own_model == "shared-private":
        raise RunError(f"{run}: own-model = 'shared-private' mixes two adapters by a gate; give a run whose sites have one")
    name = site or _only_site(folder)
    left = folder.directory / "sites" / name
    if not is_delivered(left):
        there = [
            folder_of_site.name
            for folder_of_site in sorted((folder.directory / "sites").glob("*"))
            if is_delivered(folder_of_site)
        ]
        raise RunError(
            f"{run}: nothing was delivered to site {name!r}{nearest(name, there)}; delivered: {', '.join(there) or 'to nobody'}"
        )
    return finished, name


def _only_site(folder: RunFolder) -> str:
    """Any site, where all end with the same tensors."""
    clusters = folder.read("clusters.json") or {}
    if any(len(named) > 1 for named in clusters.values()):
        sites = list(folder.read("sites.json") or {})
        raise RunError(f"{folder.directory}: its sites have different encoders; say whose with --site, one of {', '.join(sites)}")
    return next(iter(folder.read("sites.json") or {}), "")
