"""`fedlingua personalize`: table 6 and figure 3 of Manoel et al. 2022 for a finished run, from the best round on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import plotly.graph_objects as go
from typer import Option

from fedlingua.common.files import replace_text
from fedlingua.desk.cli import options
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.report.canvas import frame, line, look_of_line, short
from fedlingua.desk.report.publish import put_page, render_page
from fedlingua.desk.templates import markdown_table
from fedlingua.desk.units import score
from fedlingua.settings.metrics import METRICS
from fedlingua_lab.start import Start

commands = Commands()
MODELS = {"federated": "federated", "personal": "personal", "apfl": "APFL's alpha", "chosen": "dev's alpha"}
Result = Mapping[str, Any]


@commands.command(epilog=example("fedlingua personalize --run runs/demo-adapter-families-2022 --site hospital-de --epochs 2"))
def personalize(
    run: options.RunOption,
    data: options.Data = None,
    site: options.SitesOption = None,
    epochs: Annotated[int, Option(min=0, help="Most passes over a site's text; 0: as in the run's last phase.")] = 0,
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of the own models; 0: the run's.")] = 0.0,
    alpha_rate: Annotated[float, Option(min=0, help="Learning rate of alpha.")] = 1.0,
) -> Answer:
    start = Start.of(run, site or [], data_dir=str(data.expanduser().resolve()) if data else "")
    # It imports torch, so it comes after all that can be refused without it.
    from fedlingua_lab.mixtures import measure_mixtures

    trainable, settings, results = start.run.trainable(), start.settings, []
    settings = replace(
        settings, keep_passes=epochs or settings.keep_passes, learning_rate=learning_rate or settings.learning_rate
    )
    for name in start.sites:
        results.append(measure_mixtures(start, name, trainable, settings, alpha_rate))
        say(f"{name}: alpha {results[-1]['alpha']:.2f} learned, {results[-1]['chosen_alpha']:.2f} chosen on dev")
    file, title = start.run.folder.directory / "personalization.json", f"{run.name}, personalized from round {start.number}"
    replace_text(file, json.dumps(results, indent=1) + "\n")
    table = f"{title}; test\n\n{table_of_models(results, settings.task)}\n"
    replace_text(file.with_suffix(".md"), table)
    page = render_page(Path(__file__).with_suffix(".html"), title, {"alphas": plot_of_alphas(results)}, heading=title)
    say(f"\n{table}\n{put_page(page, file.with_suffix('.html'))}")
    return results


def table_of_models(results: Sequence[Result], task: str) -> str:
    """Return table 6 in Markdown: each model's two metrics on a site's test text, and the two alphas; bold is a site's best."""
    metrics = METRICS[task]
    rows = [["site", "alpha, APFL", "alpha, dev", *(f"{each.short} {name}" for each in metrics for name in MODELS.values())]]
    for of_site in results:
        row = [of_site["site"], score(of_site["alpha"]), score(of_site["chosen_alpha"])]
        for metric in metrics:
            values = [metric.scale * of_site["test"][model][metric.key] for model in MODELS]
            best = score(metric.best(values))
            row += [f"**{shown}**" if shown == best else shown for shown in map(score, values)]
        rows.append(row)
    signatures = dict.fromkeys(each["test_split"].get("signature", "") for each in results)
    return markdown_table(rows) + "".join(f"\n\nBLEU: `{each}`" for each in signatures if each)


def plot_of_alphas(results: Sequence[Result]) -> go.Figure:
    """Draw figure 3: each site's dev loss by alpha, less that of the federation's model; the large mark is the alpha chosen."""
    figure = go.Figure()
    for place, of_site in enumerate(results):
        (_, federated), *_ = of_site["sweep"]
        losses = {alpha: loss - federated for alpha, loss in of_site["sweep"]}
        sizes = [11 if alpha == of_site["chosen_alpha"] else 4 for alpha in losses]
        hover = f"{short(of_site['site'])}<br>alpha %{{x:.2f}}: %{{y:+.4f}}"
        line(figure, losses, short(of_site["site"]), hover, None, marker_size=sizes, **look_of_line(place))
    frame(figure, 420, "alpha: share of the site's own model", "dev loss over the federation's, nats a token")
    return figure
