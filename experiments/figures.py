"""Draw the figures of README.md and docs/ from what is committed under `experiments/results`.

    .venv/bin/python -m experiments.figures [FOLDER]

Writes joining.svg, bytes.svg, rules.svg and rounds.svg to FOLDER (docs/images). Needs Debian's chromium and chromium-driver, in which
plotly makes the pictures.
"""

import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple
from urllib.parse import unquote

import plotly.graph_objects as go

from experiments.verify import RESULTS, ROOT, Json, Result
from fedlingua.desk.report.canvas import BEFORE, DOTTED, PALETTE, UP, WORSE, frame, line, look_of_line, marks
from fedlingua.desk.report.publish import LIBRARY, PAGES
from fedlingua_lab.pages.pareto import pareto_front

WIDTH = 840
GROUND = "#ffffff"
TEXT = "#333333"

JOINED = {
    "software/four_es_en/model-fed": "a new language for a student, 8 × 1,000",
    "software/four/model-fed": "four programs, a student, 4 × 1,000",
    "software/four_150/model-fed": "four programs, a student, 4 × 150",
    "real/bible_model/model-fed": "New Testament, 8 × 500, whole model",
    "real/sizes_three_2000_model/model-fed": "† New Testament, 3 × 2,000, whole model",
    "real/bible_m2m_model/model-fed": "among seven languages, 12 × 390, whole model",
    "real/sizes_eight_150_model/model-fed": "† New Testament, 8 × 150, whole model",
    "real/sizes_eight_150/adapter-fed": "New Testament, 8 × 150, adapters",
    "real/sizes_eight_50_model/model-fed": "† New Testament, 8 × 50, whole model",
    "real/sizes_eight_50/adapter-fed": "New Testament, 8 × 50, adapters",
    "real/kinds_large/model-fed": "three kinds of text, 6 × 500, whole model",
    "real/tico_three_model/model-fed": "† medical, 3 × 500, whole model",
    "phrasebook/trades/adapter-families": "phrasebook, 9 × 220, adapters",
}
"""Suite and row -> its name in joining.svg, from top to bottom."""
CODED = {
    "phrasebook/codes": ("phrasebook/codes/adapter-families", "phrasebook, 48 rounds", "bottom center"),
    "phrasebook/codes_half": ("phrasebook/codes/adapter-families", "phrasebook, 24 rounds", "top center"),
    "real/sizes_eight_150_codes": ("real/sizes_eight_150_codes/adapter-fed", "New Testament", "bottom right"),
}
"""Suite -> the row that sends float32, the suite's name in bytes.svg, and where its codes stand beside their dots."""
CROWDED = {("phrasebook/codes_half", "sign"): "middle right"}
"""Suite and code -> where that code stands instead."""
RULES = {
    "pmfl": ("", "top center"),
    "pmfl+4bit": ("everything at four bits", "top center"),
    "fixed-l": ("", "top center"),
    "metasend-l": ("MetaSend's learned threshold,<br>a fixed one, and everything", "top left"),
    "apf": ("apf", "middle left"),
    "top-k": ("the half with the largest magnitude", "middle left"),
}
"""Row of metasend/bytes_phrasebook_chosen -> its name in rules.svg, and where it stands beside its dot; one name for dots in one place."""


class Gain(NamedTuple):
    """What joining is worth at one site under one seed: kept - the better of base and alone, in BLEU. sure: its interval leaves out 0."""

    bleu: float
    sure: bool


class Coded(NamedTuple):
    """A row of a suite of codes. share: of float32's bytes, up and down; change: of macro BLEU beside float32."""

    code: str
    share: float
    change: float


class Spent(NamedTuple):
    """A row of a suite. mb: all bytes of a site in the run, up and down, in MB; bleu: macro BLEU; both means over seeds."""

    row: str
    mb: float
    bleu: float


def gains(scores: Sequence[Json]) -> list[Gain]:
    """Return the gain of every site of every run over the better of base and alone."""
    of_sites = [site["gain"] for of_run in scores for site in of_run["sites"].values()]
    return [Gain(gain["bleu"], gain["low"] > 0 or gain["high"] < 0) for gain in of_sites]


def federated(scores: Sequence[Json]) -> float:
    """Return the federation's macro BLEU, mean over runs."""
    return fmean(float(of_run.get("macro_federated_bleu", of_run["macro_bleu"])) for of_run in scores)


def coded(suite: Result, reference: Result, row: str) -> list[Coded]:
    """Return the rows of a suite that send coded changes, beside the row of `reference` that sends float32 in all of its rounds."""
    counted = [scores.get("total_bytes") for runs in reference.rows.values() for scores in runs]
    whole, bleu = max(each["fp32"] for each in counted if each), federated(reference.rows[row])
    codes = {line["method"]: line["run"]["config"] for line in suite.runs.values() if line["method"] not in (row, "base")}
    found = []
    for name, config in codes.items():
        runs, down = suite.rows[name], config["send.code-down"]
        sent = fmean(scores["total_bytes"]["up"] + scores["total_bytes"]["down"] for scores in runs)
        code = config["send.code"] + ("" if down == "same" else f", down {down}")
        found.append(Coded(code, sent / whole, federated(runs) - bleu))
    return found


def spent(suite: Result) -> list[Spent]:
    """Return the rows of a suite, as means over seeds."""
    sent = {row: [runs["total_bytes"]["up"] + runs["total_bytes"]["down"] for runs in of] for row, of in suite.rows.items()}
    return [Spent(row, fmean(sent[row]) / 1e6, federated(of)) for row, of in suite.rows.items()]


def joining() -> go.Figure:
    """Draw what joining is worth at each site under each seed, a row of dots for each suite."""
    figure, names = go.Figure(), []
    for row, (place, name) in enumerate(JOINED.items()):
        suite, _, method = place.rpartition("/")
        found = sorted(gains(Result(RESULTS / suite).rows[method]))
        mean = fmean(gain.bleu for gain in found)
        names.append(
            f"{name}<br>{sum(gain.sure and gain.bleu > 0 for gain in found)} of {len(found)} beyond chance, mean {mean:+.1f}"
        )
        # Dots of one height would hide one another: in the order of their gains they go down through the row.
        dots = [(row - 0.25 + 0.5 * rank / len(found), gain) for rank, gain in enumerate(found)]
        for color, sure, label in ((UP, True, "95 % interval without 0"), (BEFORE, False, "within chance")):
            y, x = [height for height, gain in dots if gain.sure is sure], [gain.bleu for gain in found if gain.sure is sure]
            marks(figure, x, y, label, "%{x:.1f}", marker_color=color, marker_size=8, showlegend=row == 0)
        figure.add_shape(type="line", x0=mean, x1=mean, y0=row - 0.35, y1=row + 0.35, line={"color": WORSE, "width": 2})
    x_title = "kept - the better of base and alone, BLEU (†: two models beside one)"
    frame(figure, height=110 + 85 * len(names), x_title=x_title)
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, autorange="reversed", showgrid=False)
    figure.add_vline(x=0, line=DOTTED)
    return figure


def coding() -> go.Figure:
    """Draw the federation's BLEU against the bytes that it costs, both beside float32."""
    figure = go.Figure()
    for color, (place, (reference, name, beside)) in zip(PALETTE, CODED.items(), strict=False):
        suite, _, row = reference.rpartition("/")
        found = coded(Result(RESULTS / place), Result(RESULTS / suite), row)
        x, y, codes = [1 / each.share for each in found], [each.change for each in found], [each.code for each in found]
        places = [CROWDED.get((place, code), beside) for code in codes]
        marker = {"color": color, "size": 10}
        marks(figure, x, y, name, "%{text}", marker=marker, mode="markers+text", text=codes, textposition=places)
    x_title = "times fewer bytes than float32, up and down in the whole run"
    frame(figure, height=400, x_title=x_title, y_title="macro BLEU beside float32")
    figure.update_xaxes(type="log", tickvals=[5, 10, 20, 30, 50, 70, 100], range=[0.9, 2])
    figure.add_hline(y=0, line=DOTTED)
    return figure


def ruling() -> go.Figure:
    """Draw the BLEU of MetaSend and of other rules against all bytes of a run, with the Pareto front; alone as a line."""
    figure, rows = go.Figure(), spent(Result(RESULTS / "metasend/bytes_phrasebook_chosen"))
    found = [each for each in rows if each.row in RULES]
    front = [found[place] for place in pareto_front([(-each.mb, each.bleu) for each in found])]
    for color, shown, label in (
        (UP, sorted(front, key=lambda each: each.mb), "Pareto front"),
        (BEFORE, [each for each in found if each not in front], "beaten by another"),
    ):
        names, places = [RULES[each.row][0] for each in shown], [RULES[each.row][1] for each in shown]
        line: Json = {"line": {"dash": "dash", "shape": "hv"}} if color is UP else {}
        mode = "lines+markers+text" if line else "markers+text"
        style: Json = {"mode": mode, **line, "text": names, "textposition": places, "marker_color": color, "marker_size": 10}
        marks(figure, [each.mb for each in shown], [each.bleu for each in shown], label, "%{text}", **style)
    frame(
        figure,
        height=400,
        x_title="MB of a site in the whole run, up and down",
        y_title="macro BLEU on test, mean of three seeds",
    )
    figure.update_xaxes(type="log", tickvals=[20, 30, 50, 100, 200, 300], range=[1.2, 2.7])
    alone = next(each for each in rows if each.row == "adapter-local")
    figure.add_hline(y=alone.bleu, line=DOTTED)
    figure.add_annotation(
        x=1.25, y=alone.bleu, text=f"alone, {alone.mb:.1f} MB", showarrow=False, xanchor="left", yanchor="bottom"
    )
    return figure


def rounding() -> go.Figure:
    """Draw macro BLEU on dev after each round for every rule (the journal's figure 7)."""
    figure = go.Figure()
    rows = json.loads((RESULTS / "metasend/figure7_phrasebook/by_round.json").read_text(encoding="utf-8"))
    for place, (name, rounds) in enumerate(rows.items()):
        scores = {number: each["bleu"] for number, each in enumerate(rounds)}
        line(figure, scores, name.rpartition("-")[0], "%{y:.1f}", None, marker_size=5, **look_of_line(place))
    frame(figure, height=400, x_title="round; 0 is the base", y_title="macro BLEU on dev")
    return figure


def svg(figure: go.Figure) -> str:
    """Return a figure as SVG on a white ground, as Chromium draws it."""
    from selenium import webdriver

    figure.update_layout(width=WIDTH, paper_bgcolor=GROUND, plot_bgcolor=GROUND, font={"color": TEXT})
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("no chromium: apt-get install chromium chromium-driver")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        Path(folder, LIBRARY).write_bytes(gzip.decompress((PAGES / f"{LIBRARY}.gz").read_bytes()))
        page.write_text(f'<div id="plot"></div><script src="{LIBRARY}"></script>', encoding="utf-8")
        window = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            window.get(page.as_uri())
            drawn = window.execute_async_script(
                "const [figure, done] = [JSON.parse(arguments[0]), arguments[1]];"
                "Plotly.newPlot('plot', figure.data, figure.layout).then(plot => Plotly.toImage(plot, {format: 'svg'})).then(done);",
                figure.to_json(),
            )
        finally:
            window.quit()
    return unquote(drawn.partition(",")[2])


def main(folder: Path) -> None:
    """Write all figures."""
    for name, figure in {"joining": joining(), "bytes": coding(), "rules": ruling(), "rounds": rounding()}.items():
        (folder / f"{name}.svg").write_text(svg(figure) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
