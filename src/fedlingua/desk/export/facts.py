"""The facts in a model's export.json: languages, sizes, method, scores, bytes, privacy, versions; no text and no path."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedlingua.backbones.published import LICENCES, PINNED_REVISIONS
from fedlingua.clustering.clusters import cluster_of
from fedlingua.common.languages import parse_written
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.privacy.accounting import signature_epsilon
from fedlingua.runs.folder import RunFolder, library_versions
from fedlingua.settings.config import Settings

Facts = dict[str, Any]


def public_name(backbone: str) -> str:
    """Return a backbone's public name: its name, or of a path the last part, which is no hub id."""
    path = Path(backbone).expanduser()
    return path.name if path.is_absolute() or backbone.startswith(".") or path.is_dir() else backbone


def facts(model: TrainedModel, directory: Path, name: str, run_dir: Path | None) -> Facts:
    """Return all that is known of a model.

    Args:
        directory: The backbone's directory.
        name: The backbone's public name.
        run_dir: The run's folder; None at a site, which knows less than the server: of the scores, BLEU.

    Raises:
        RunError: The file with the site's scores is damaged.
    """
    settings = model.settings
    of_model: Facts = {
        "task": settings.task,
        "site": model.site,
        "direction": str(model.direction),
        "languages": sorted({model.direction.source, model.direction.target}),
        "round": model.round,
        "kept": model.candidate,
        "ensemble_with": model.second[0].candidate if model.second else None,
        "method": settings.method,
        "tensor_set": settings.trained_set,
        "frozen_bits": settings.frozen_bits,
        "aggregation": settings.aggregation if settings.how.travels else None,
        "selection": settings.rule,
        "pooled": settings.how.pooled,
        "travels": settings.how.travels,
        "seed": settings.seed,
        "config_hash": settings.hash(),
        "max_tokens": settings.max_tokens,
        "decoding": {
            "beam": settings.beam,
            "max_new_tokens": settings.max_decode_tokens,
            "no_repeat_ngram": settings.no_repeat_ngram,
        },
        "backbone": {
            "name": name,
            "revision": settings.backbone_revision or PINNED_REVISIONS.get(name, ""),
            "fingerprint": model.fingerprint,
            "drawn_at_random": settings.backbone_weights == "random",
            "licence": licence_of(directory, name),
        },
        "dp": {
            "epsilon": settings.dp_epsilon,
            "delta": settings.dp_delta,
            "shared": settings.shares_noise,
            "unit": settings.dp_unit,
        }
        if settings.trains_privately
        else None,
        "signatures": _signatures(settings),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions("peft"),
    }
    scores = model.site_scores
    return of_model | (_of_run(model, run_dir) if run_dir else {"scored_on": scores.get("split"), "scores": scores or None})


def _of_run(model: TrainedModel, run_dir: Path) -> Facts:
    """Return the facts that only the server's run folder has."""
    run = CompletedRun.of(run_dir)
    folder, about = run.folder, run.about
    sites: Mapping[str, Any] = folder.read("sites.json") or {}
    scores = folder.read("scores.json") or {}
    host = next((name for name, entry in sites.items() if model.site in entry["members"]), None)
    members = {site: direction for entry in sites.values() for site, direction in entry["members"].items()}
    languages = sorted({code for held in map(parse_written, members.values()) for code in held.sides})
    scored = scores.get("sites", {})  # an entry for each direction of a site with several
    traffic = (folder.read("traffic.json") or {}).get(host or "", {}).values()
    ways = ("uplink_bytes", "downlink_bytes")
    return {
        **({"languages": languages} if model.settings.task == "masked-language" else {}),
        "rounds": about.get("rounds"),
        "sites": len(members),
        "directions": sorted(set(members.values())),
        "sentences": {key: sites[host][key] for key in ("train", "dev", "test")} if host else None,
        "together_with": None if model.settings.how.pooled else _together(folder, host),
        "trained_parameters": about.get("trained_parameters"),
        "exchanged_parameters": about.get("exchanged_parameters"),
        "scored_on": scores.get("split", "test"),
        "scores": scored.get(f"{model.site}:{model.direction}", scored.get(model.site or "")),
        "bytes": {way: sum(int(kind[way]) for kind in traffic) for way in ways} if traffic else None,
        "run": {key: about.get(key) for key in ("id", "git_revision", "started", "finished", "versions")},
    }


def _together(folder: RunFolder, host: str | None) -> dict[str, int] | None:
    """Return part -> number of sites whose mean the tensors are, the site included; None if the site is in no cluster."""
    clusters = folder.read("clusters.json") or {}
    if host is None or not all(any(host in sites for sites in named.values()) for named in clusters.values()):
        return None
    return {part: len(named[cluster_of(clusters, part, host)]) for part, named in clusters.items()} or None  # type: ignore[arg-type]


def _signatures(settings: Settings) -> Facts | None:
    """Return what the sites' signatures disclosed for clustering, before the first round; None if they sent none."""
    if settings.how.clustering != "gradients":
        return None
    delta = settings.signature_delta if settings.signature_form == "private" else None
    epsilon = None if delta is None else signature_epsilon(settings.signature_noise, delta)
    return {"form": settings.signature_form, "epsilon": epsilon, "delta": delta}


def licence_of(directory: Path, name: str) -> str | None:
    """Return the licence that this project knows, or that the model card beside the backbone gives; None if neither."""
    card = directory / "README.md"
    if name in LICENCES or not card.is_file():
        return LICENCES.get(name)
    header = re.match(r"---\n(.*?)\n---", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    licence = re.search(r"^license: *['\"]?([\w.-]+)", header.group(1), re.MULTILINE) if header else None
    return licence.group(1) if licence else None
