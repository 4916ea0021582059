"""The HTML page of a run: the content of each section, taken from the run folder."""

from pathlib import Path

import plotly.graph_objects as go

from fedlingua.desk.json_values import mapping, number, sequence, text, whole
from fedlingua.desk.report import run_plots
from fedlingua.desk.report.canvas import colour
from fedlingua.desk.report.communication import BANDWIDTH_MBPS, mean_bytes, run_communication
from fedlingua.desk.report.passes import passes_plot
from fedlingua.desk.report.publish import heading, put_page, render_page, sites_by_signature
from fedlingua.desk.report.read import RunContent, Score, change, read_run
from fedlingua.desk.report.round_seconds import META, PHASES, READING, round_seconds
from fedlingua.desk.report.sent import deviation_plot, not_drawn, share_plot, shown_rounds, threshold_plot, what_was_sent
from fedlingua.desk.report.signatures import dendrogram_plot
from fedlingua.desk.report.tables import averages, below_base, better_off, choice_table, headers, verdict
from fedlingua.desk.report.translations import MODELS, SHOWN_SENTENCES, read_examples, read_translations, shown_lines


def write_report(run_dir: Path, bandwidth_mbps: float = BANDWIDTH_MBPS) -> Path:
    """Write `report.html` into the run folder and return its path.

    Args:
        bandwidth_mbps: The server's bandwidth, shared by all sites. The page shows a round's cost at a tenth of it, at it and at ten times.

    Raises:
        ConfigError: The bandwidth is not a positive number. RunError: The folder has no run or cannot be written to.
    """
    folder = read_run(run_dir)
    return put_page(render(folder, bandwidth_mbps), folder.path / "report.html")


def render(folder: RunContent, bandwidth_mbps: float = BANDWIDTH_MBPS) -> str:
    communication = run_communication(folder, bandwidth_mbps)
    colours, sent, config = _cluster_colours(folder), what_was_sent(folder), mapping(folder.run.get("config"))
    accounts = [account for site in folder.sites for account in site.accounts]
    still = " The run is still going." if folder.status == "running" else ""
    figures: dict[str, go.Figure | None] = {  # None where there is nothing to draw
        "loss": run_plots.loss_plot(folder) if folder.round_sites else None,
        "passes": passes_plot(folder) if choice_table(folder)[0] else None,
        "bytes": run_plots.bytes_plot(folder),
        "time": run_plots.time_plot(folder) if folder.round_sites else None,
        "shares": share_plot(sent) if sent and (sent.tensors or sent.numbers) else None,
        "threshold": threshold_plot(sent) if sent and (sent.thresholds or sent.own_thresholds) else None,
        "deviations": deviation_plot(sent) if sent and shown_rounds(sent.deviations) else None,
        **{f"dendrogram-{known.part}": dendrogram_plot(known, colours) for known in folder.site_signatures},
    }
    named = {"federation": name} if (name := text(mapping(folder.run.get("federation")).get("name"))) else {}
    translations, lost_translations = read_translations(folder.path, [site.name for site in folder.sites])
    return render_page(
        "run.html",
        folder.name,
        figures,
        heading=heading({**config, **named}),
        verdict=verdict(folder),
        below_base=below_base(folder),
        folder=folder,
        run=folder.run,
        warnings=list(map(text, sequence(folder.run.get("warnings")))),
        macro=change(folder.metrics[0], folder.summary, "macro_"),
        done_rounds=max((each.number for each in folder.rounds), default=whole(folder.run.get("rounds"))),
        planned_rounds=whole(config.get("rounds")) if folder.settings is None or folder.settings.how.trains else 0,
        run_seconds=number(folder.run.get("seconds")),
        trained_parameters=number(folder.run.get("trained_parameters")),
        mean_uplink=mean_bytes(folder, "uplink"),
        averages=averages(folder),
        headers=headers(folder),
        choice_table=choice_table(folder),
        better_off=better_off(folder),
        communication=communication,
        examples=read_examples(folder.path, folder.scores),
        models=MODELS,
        translations=translations,
        lost_translations=lost_translations,
        keeps_translations=(whole(config.get("keep-translations")) or 0) > 0,
        shown_sentences=SHOWN_SENTENCES,
        most_sites=run_plots.MOST_SITES,
        shown_lines=shown_lines,
        sent=sent,
        seconds_by_part=round_seconds(folder.rounds),
        seconds_groups=(PHASES, META),
        seconds_reading=READING,
        not_drawn=not_drawn(sent.deviations) if sent else (0, 0),
        note=lambda name: folder.notes.get(name, f"{name} holds nothing to show.") + still,
        reasons=list(dict.fromkeys(reason for account in accounts for reason in account.dropped)),
        colours=colours,
        members=_cluster_members(folder),
        metric_signatures=_metric_signatures(folder.scores),
        backbone=mapping(folder.run.get("backbone")),
        config=config,
        versions=mapping(folder.run.get("versions")),
    )


def _cluster_members(folder: RunContent) -> list[str]:
    """Return the rows of the cluster table: the sites in their usual order, then sites that only the clusters name."""
    named = [site for clusters in folder.clusters.values() for sites in clusters.values() for site in sites]
    order = [site.name for site in folder.sites] or folder.round_sites
    return [site for site in dict.fromkeys([*order, *named]) if site in set(named)]


def _cluster_colours(folder: RunContent) -> dict[str, str]:
    """Return cluster name -> colour, so that a family has the same colour in every part."""
    names = dict.fromkeys(cluster for clusters in folder.clusters.values() for cluster in clusters)
    names |= dict.fromkeys(cluster for known in folder.site_signatures for cluster in known.clusters.values())
    return {name: colour(index) for index, name in enumerate(names)}


def _metric_signatures(scores: list[Score]) -> list[tuple[str, str, str]]:
    """Return (metric, signature, the sites for which it holds); one entry per metric if all sites have the same."""
    labels = run_plots.score_labels(scores)
    signed = {"BLEU": [line.signature for line in scores], "chrF": [line.chrf_signature for line in scores]}
    return [
        (metric, signature, sites)
        for metric, signatures in signed.items()
        for signature, sites in sites_by_signature(zip(labels, signatures, strict=True), len(scores))
    ]
