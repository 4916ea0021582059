"""Read what a run's sites store of their scored text: source, reference, the base's translation and the run's."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlingua.common.errors import CorpusError, RunError
from fedlingua.common.languages import nearest, parse_direction
from fedlingua.corpora.read import read_lines
from fedlingua.desk.completed import check_completed, no_scores
from fedlingua.evaluation.text_metrics import Translated
from fedlingua.evaluation.totals import ALL_SITES
from fedlingua.runs.folder import RunFolder, run_about

HEADER = ["source", "reference", "base", "hypothesis"]


@dataclass(frozen=True)
class SiteTranslations:
    """Translations of a site's scored text: the run's and the base's."""

    hypothesis: Translated
    base: Translated


def read_site_translations(run_dir: Path, sites: Collection[str] = ()) -> dict[str, SiteTranslations]:
    """Map each site, named as in scores.json, to its translations. sites: read only these; empty: all.

    Raises:
        RunError: the run is not completed, a site is not in it, or its translations are not here, as in a deployment.
        CorpusError: a file does not have the form in which a site writes it.
    """
    folder = RunFolder(run_dir)
    about, scores = run_about(run_dir), folder.read("scores.json")
    check_completed(run_dir, about)
    if scores is None:
        raise no_scores(run_dir)
    if about["config"].get("task") == "masked-language":
        raise RunError(
            f"{run_dir}: this run pre-trains an encoder, which translates nothing; its perplexities are in scores.json"
        )
    known = scores["sites"]
    if ALL_SITES in known:
        raise RunError(
            f"{run_dir}: this run has scores of {ALL_SITES} together (privacy.scores = 'sum'), and none of a site; at a deployed site: "
            "`fedlingua site translate`; for a simulation that shows sites, give privacy.scores = 'sites'"
        )
    for name in sites:
        if name not in known:
            raise RunError(f"{run_dir}: no site {name!r} has scores here{nearest(name, known)}; there are {', '.join(known)}")
    return {name: site_translations(run_dir, name, known[name]["direction"]) for name in sites or known}


def site_translations(run_dir: Path, name: str, direction: str) -> SiteTranslations:
    """Read a site's translations.tsv: header, then source, reference, base and hypothesis of each sentence.

    Raises as `read_site_translations` does, and ConfigError for a wrong direction.
    """
    own = run_dir / "sites" / name / "translations.tsv"
    file = own if own.is_file() else min((run_dir / "sites").glob(f"*/translations-{name}.tsv"), default=None)
    if file is None:
        raise RunError(
            f"{run_dir}: the translations of site {name} are not here; in a deployment they stay at the site, which scores them itself "
            "where the run has them in its key metrics"
        )
    lines, target = read_lines(file), parse_direction(direction).target
    header = next(lines).split("\t")
    if header != HEADER:
        raise CorpusError(f"{file}, line 1: the header is {', '.join(header)}; wanted {', '.join(HEADER)}")
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(HEADER):
            raise CorpusError(f"{file}, line {number}: {len(row)} columns; wanted {len(HEADER)}, separated by tabs")
    source, reference, base, hypothesis = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    return SiteTranslations(Translated(source, hypothesis, reference, target), Translated(source, base, reference, target))


def read_files(files: Sequence[Path], target: str) -> Translated:
    """Read source, hypothesis and reference from three files, one sentence per line; CorpusError unless all have as many."""
    sides = [(path, list(read_lines(path))) for path in files]
    if len({len(lines) for _, lines in sides}) > 1:
        raise CorpusError(f"{', '.join(f'{path} has {len(lines)} lines' for path, lines in sides)}; wanted as many in each")
    sources, hypotheses, references = (lines for _, lines in sides)
    return Translated(sources, hypotheses, references, target)
