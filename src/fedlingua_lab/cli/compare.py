"""`fedlingua compare`: compare runs side by side, as tables or as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Argument, BadParameter, Option

from fedlingua.common.errors import ConfigError
from fedlingua.desk import units
from fedlingua.desk.cli.completion import metrics, run_folders
from fedlingua.desk.cli.corpus_input import CorpusInput
from fedlingua.desk.cli.options import CometModel
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, progress_bar, say

if TYPE_CHECKING:  # what draws pages is slow to import, and completion does not need it
    from fedlingua_lab.comparison.compare import Comparison
    from fedlingua_lab.comparison.differences import Difference
    from fedlingua_lab.comparison.runs import ComparedRun

commands = Commands()
LEAST_SAMPLES = 40


@dataclass(frozen=True)
class PublicText:
    """Public text that all runs translate now: a corpus and its directions."""

    public: Annotated[str | None, Option(help="Corpus that all runs translate now, in place of their sites' test text.")] = None
    direction: Annotated[list[str] | None, Option(help="Direction of --public, such as de-fr; repeatable.")] = None
    kind: Annotated[str | None, Option(help="Kind of --public, if its ending does not say.")] = None
    option: Annotated[list[str] | None, Option(help="Further keys of --public, as in a federation file.")] = None
    limit: Annotated[int, Option(min=0, help="Most pairs of --public for each direction; 0: all.")] = 0
    model: CometModel = "wmt22-comet-da"

    def translated(self, folders: Sequence[Path], metric: str) -> "list[ComparedRun]":
        """Translate this text with each run and return the runs with the results. The text is used as published, uncleaned.

        Raises:
            ConfigError: no direction, or an unknown kind. CorpusError: the text cannot be read.
        """
        if not self.direction:
            raise ConfigError("--public needs --direction, such as de-fr, once for each direction to compare")
        corpora = [CorpusInput(str(self.public), each, self.kind, self.option) for each in self.direction]
        text = {corpus.parsed: list(islice(corpus.read(), self.limit or None)) for corpus in corpora}
        from fedlingua_lab.comparison.public import on_public_text  # loads models, which other comparisons do not need

        with progress_bar() as report:
            return on_public_text(folders, text, metric, self.model, report)


@commands.command(epilog=example("fedlingua compare runs/demo-adapter-local-2022 runs/demo-adapter-families-2022"))
def compare(
    runs: Annotated[
        list[Path],
        Argument(
            help="Run folders, or RESULT/METHOD-SEED of a kept run. The others are compared with the first.",
            shell_complete=run_folders,
        ),
    ],
    text: PublicText,
    metric: Annotated[
        str,
        Option(
            help="Metric: bleu, chrf, chrf++, ter, comet, ...; default: the first metric of the runs' task.",
            shell_complete=metrics,
        ),
    ] = "",
    samples: Annotated[int, Option(min=LEAST_SAMPLES, help="Samples of the paired bootstrap.")] = 1000,
    sentences: Annotated[
        int, Option(min=0, help="Sentences to show for each site: those that the first two runs translate most differently.")
    ] = 0,
    to: Annotated[Path | None, Option(metavar="FILE.html", help="Also write a page with a plot of the differences.")] = None,
) -> Answer:
    from fedlingua_lab.comparison.compare import compare as compare_runs
    from fedlingua_lab.comparison.runs import read_runs
    from fedlingua_lab.pages.comparison_page import check_page, write_comparison

    if text.public is None and (text.direction or text.kind or text.option or text.limit):
        raise BadParameter("--direction, --kind, --option and --limit go with --public")
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} run cannot be compared; give two run folders or more")
    if to:
        check_page(to)
    compared = text.translated(runs, metric) if text.public is not None else read_runs(runs)
    comparison = compare_runs(compared, metric, samples, sentences)
    if to:
        write_comparison(comparison, to)
    for name, run in _numbered(comparison).items():
        say(f"{name}: {run.folder}")
    for table in (*_scores_tables(comparison), _costs_table(comparison)):
        console().print(table)
    if comparison.over_seeds:
        console().print(_seeds_table(comparison))
    for sentence in comparison.sentences:
        say(f"{sentence.site} ({sentence.direction}), chrF {units.gain(sentence.gain)}", style="bold")
        names = ("source", "reference", comparison.runs[0].name, comparison.runs[1].name)
        for name, words in zip(names, (sentence.source, sentence.reference, sentence.first, sentence.second), strict=True):
            console().print(f"  {name}: {words}")
    if to:
        say(f"report: {to}")
    return {**_answer(comparison), "report": to}


def _answer(comparison: "Comparison") -> dict[str, Any]:
    """Return the whole comparison, for programs."""

    def figures(each: "Difference | None") -> dict[str, float | None] | None:
        return {**asdict(each), "difference": each.value} if each else None

    return {
        "metric": comparison.metric.key,
        "runs": [{"name": run.name, "method": run.method, "seed": run.seed, **run.costs} for run in comparison.runs],
        "scores": comparison.scores,
        "beside": [
            {
                "run": each.run,
                "sites": {site: figures(of) for site, of in each.sites.items()},
                "macro": figures(each.macro),
                "pooled": figures(each.pooled),
            }
            for each in comparison.beside
        ],
        "fairness": [asdict(each) | {"gain": each.gain, "left_behind": each.left_behind} for each in comparison.fairness],
        "over_seeds": [asdict(each) for each in comparison.over_seeds],
        "sentences": [asdict(each) for each in comparison.sentences],
    }


def _numbered(comparison: "Comparison") -> dict[str, "ComparedRun"]:
    """Return the runs by the short names that the tables give them, so that no name is cut."""
    return {f"run {number}": run for number, run in enumerate(comparison.runs, start=1)}


def _scores_tables(comparison: "Comparison") -> Iterator[Table]:
    """Yield a table for every run but the first, a line a site: both scores, the difference, its 95 % interval and p, with a star if the
    interval leaves out 0."""
    scale, (first, *others) = comparison.metric.scale, _numbered(comparison)
    for name, run in zip(others, comparison.beside, strict=True):
        sampled = run.macro.p is not None
        figures = ("95 % from", "to", "p") if sampled else ()
        table = plain_table("site", first, name, "difference", *figures, title=f"{comparison.metric.name}, {name} beside {first}")
        means = {"macro": run.macro, "pooled": run.pooled}
        for place, (row, each) in enumerate([*run.sites.items(), *means.items()]):
            if each:
                cells = [*(units.score(scale * value) for value in (each.first, each.second)), units.gain(scale * each.value)]
                if sampled:
                    cells += [units.gain(None if end is None else scale * end) for end in (each.low, each.high)]
                    cells += [units.NOTHING if each.p is None else f"{each.p:.3f}{'*' if each.is_clear else ''}"]
                table.add_row(row, *cells, style="" if place < len(run.sites) else "bold")
        yield table


def _costs_table(comparison: "Comparison") -> Table:
    """Return a line a run: its cost (a site's bytes up and down in the whole run) and how its sites fare; no empty columns."""
    headers = ("run", "bytes", "rounds", "time", "worst site", "its score", "spread", "gain of joining", "left behind")
    scale, rows = comparison.metric.scale, []
    for (name, run), fair in zip(_numbered(comparison).items(), comparison.fairness, strict=True):
        worst, spread, gain = (None if value is None else scale * value for value in (fair.worst, fair.spread, fair.gain))
        behind = ", ".join(fair.left_behind) if fair.left_behind else ("none" if fair.gains else units.NOTHING)
        cells = (units.data(run.total_bytes), units.count(run.costs["rounds"]), units.duration(run.costs["seconds"]))
        fares = (fair.worst_site or units.NOTHING, units.score(worst), units.score(spread), units.gain(gain))
        rows.append((name, *cells, *fares, behind))
    filled = [place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) != {units.NOTHING}]
    shown, *lines = [[row[place] for place in filled] for row in (headers, *rows)]
    return plain_table(*shown, rows=lines, title="cost and fairness", left=("worst site", "left behind"))


def _seeds_table(comparison: "Comparison") -> Table:
    def shown(pair: tuple[float, float] | None) -> str:
        return units.NOTHING if pair is None else units.mean_and_sd(*(comparison.metric.scale * value for value in pair))

    headers = ("method", "seeds", "macro", "worst site", "spread", "gain of joining")
    rows = [
        (each.method, str(len(each.seeds)), *map(shown, (each.macro, each.worst, each.spread, each.gain)))
        for each in comparison.over_seeds
    ]
    return plain_table(*headers, rows=rows, title="over seeds, mean ± sample standard deviation")
