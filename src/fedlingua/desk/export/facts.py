"""What is told of an exported model, beside it, in export.json: languages, sizes, method, scores, bytes, privacy, versions.

Figures and names alone: no text, no path.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedlingua.backbones.pinned import LICENCES, PINNED_REVISIONS
from fedlingua.clustering.clusters import cluster_of
from fedlingua.clustering.privacy import signature_epsilon
from fedlingua.common.languages import parse_written
from fedlingua.desk.trained import Trained
from fedlingua.runs.finished import FinishedRun
from fedlingua.runs.folder import RunFolder, library_versions

Facts = dict[str, Any]


def public_name(backbone: str) -> str:
    """A backbone's name as others may read it: of a path its last part, which is no hub id."""
    path = Path(backbone).expanduser()
    return path.name if path.is_absolute() or backbone.startswith(".") or path.is_dir() else backbone


def facts(trained: Trained, directory: Path, name: str, run_dir: Path | None) -> Facts:
    """All that is known. directory, name: of the backbone. run_dir: of the run; None: at a site, which knows less than the server."""
    settings = trained.settings
    revision = settings.backbone_revision or PINNED_REVISIONS.get(name, "")
    told: Facts = {
        "task": settings.task,
        "site": trained.site,
        "direction": str(trained.direction),
        "languages": sorted({trained.direction.source, trained.direction.target}),
        "round": trained.number,
        "method": settings.method,
        "tensor_set": settings.trained_set,
        "aggregation": settings.aggregation if settings.how.travels else None,
        "selection": settings.selected_by,
        "pooled": settings.how.pooled,
        "travels": settings.how.travels,
        "seed": settings.seed,
        "config_hash": settings.hash(),
        "max_tokens": settings.max_tokens,
        "decoding": {"beam": settings.beam, "max_new_tokens": settings.max_decode_tokens},
        "backbone": {
            "name": name,
            "revision": revision,
            "fingerprint": trained.fingerprint,
            "drawn_at_random": settings.backbone_weights == "random",
            "licence": licence_of(directory, name),
        },
        "signatures": _signatures(trained),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions() | _versions("peft"),
    }
    return told | (_of_run(trained, run_dir) if run_dir else {})


def _of_run(trained: Trained, run_dir: Path) -> Facts:
    """What only the server's folder says."""
    run = FinishedRun.of(run_dir)
    folder, about = run.folder, run.about
    sites: Mapping[str, Any] = folder.read("sites.json") or {}
    scores = folder.read("scores.json") or {}
    host = next((name for name, entry in sites.items() if trained.site in entry["members"]), None)
    members = {site: direction for entry in sites.values() for site, direction in entry["members"].items()}
    encoder = trained.settings.task == "masked-language"
    languages = sorted({code for one in map(parse_written, members.values()) for code in (one.source, one.target)})
    return {
        **({"languages": languages} if encoder else {}),
        "rounds": about.get("rounds"),
        "sites": len(members),
        "directions": sorted(set(members.values())),
        "sentences": {key: sites[host][key] for key in ("train", "dev", "test")} if host else None,
        "together_with": None if trained.settings.how.pooled else _together(folder, host),
        "trained_parameters": about.get("trained_parameters"),
        "exchanged_parameters": scores.get("exchanged_parameters", about.get("exchanged_parameters")),
        "scored_on": scores.get("split", "test"),
        "scores": _scores(scores, trained),
        "bytes": _bytes(folder, host),
        "run": {key: about.get(key) for key in ("id", "git_revision", "started", "finished", "versions")},
    }


def _together(folder: RunFolder, host: str | None) -> dict[str, int] | None:
    """Part -> how many sites the tensors are a mean of, the site itself among them."""
    clusters = folder.read("clusters.json") or {}
    if host is None or not all(any(host in sites for sites in named.values()) for named in clusters.values()):
        return None
    return {part: len(named[cluster_of(clusters, part, host)]) for part, named in clusters.items()} or None  # type: ignore[arg-type]


def _scores(scores: Mapping[str, Any], trained: Trained) -> dict[str, Any] | None:
    """The site's entry of scores.json; a site with several directions has one for each."""
    entries: Mapping[str, Any] = scores.get("sites", {})
    found: dict[str, Any] | None = entries.get(f"{trained.site}:{trained.direction}", entries.get(trained.site or ""))
    return found


def _bytes(folder: RunFolder, host: str | None) -> dict[str, int] | None:
    """Of the whole run, between the site and the server."""
    traffic = (folder.read("traffic.json") or {}).get(host or "")
    if not traffic:
        return None
    return {way: sum(int(kind[way]) for kind in traffic.values()) for way in ("uplink_bytes", "downlink_bytes")}


def _signatures(trained: Trained) -> dict[str, Any] | None:
    """What sites gave away of their text to be grouped by, before the first round."""
    settings = trained.settings
    if settings.how.clustering != "gradients":
        return None
    private = settings.signature_form == "private"
    epsilon = signature_epsilon(settings.signature_noise, settings.signature_delta) if private else None
    return {"form": settings.signature_form, "epsilon": epsilon, "delta": settings.signature_delta if private else None}


def licence_of(directory: Path, name: str) -> str | None:
    """As this project knows it, or as the model card beside the backbone says; None: neither."""
    card = directory / "README.md"
    if name in LICENCES or not card.is_file():
        return LICENCES.get(name)
    header = re.match(r"---\n(.*?)\n---", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    said = re.search(r"^license: *['\"]?([\w.-]+)", header.group(1), re.MULTILINE) if header else None
    return said.group(1) if said else None


def _versions(*libraries: str) -> dict[str, str]:
    found = {}
    for library in libraries:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found
