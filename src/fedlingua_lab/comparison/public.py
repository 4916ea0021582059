"""Compare runs on public text that is translated here, which also works for deployments, whose own text stays at the sites."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.check_settings import check_measuring
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.translator import Translator
from fedlingua.evaluation.measuring import measure
from fedlingua.evaluation.scores import check_tokenizers
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from fedlingua.settings.metrics import BLEU, OF_TEXT, metric_names
from fedlingua_lab.comparison.runs import ComparedRun, read_completed

AT_ONCE = 256
"""Number of sentences translated between two progress reports."""
COSTS = ("uplink_bytes_per_round", "downlink_bytes_per_round", "total_bytes")
"""Keys that are copied from a run's own scores."""
Texts = Mapping[Direction, Sequence[Pair]]
"""The public text; in the scores, directions take the place of sites."""
Report = Callable[[str, int, int], None]
"""Called with the text being translated, the number of sentences done, and the total."""


def on_public_text(folders: Sequence[Path], texts: Texts, metric: str, model: str, report: Report) -> list[ComparedRun]:
    """Translate the same text with each run and score the translations by BLEU, chrF and `metric` ("": only these two).

    A direction is translated by the model of the site that holds it, if its tensors are here, else by the clusters nearest to its
    languages. model: COMET's.

    Raises:
        ConfigError: There is no such metric, it cannot be measured here, or a text has no sentence.
        RunError: A run is not completed, does not translate, or left no tensors at the server.
        BackboneError: A run's backbone lacks a language or is not here.
    """
    names = metric_names(",".join(["bleu", "chrf", metric]))
    check_measuring(names, model, lambda _: None)
    check_tokenizers(texts)
    for name in (name for name in names if name in TEXT_METRICS):
        if unable := [str(direction) for direction in texts if not TEXT_METRICS[name].is_able(direction.target)]:
            raise ConfigError(f"{name} cannot be measured for {', '.join(unable)}: its model lacks the target language")
    for direction, pairs in texts.items():
        if not pairs:
            raise ConfigError(f"no pair of {direction} is left of the public text; give at least one sentence")
    runs = read_completed(folders)
    return [_translated(run, folder, texts, names, model, report) for run, folder in zip(runs, folders, strict=True)]


def _translated(run: ComparedRun, folder: Path, texts: Texts, metrics: Sequence[str], model: str, report: Report) -> ComparedRun:
    made, models = dict[str, Translated](), RunModels(folder)
    for direction, pairs in texts.items():
        holder = next((site for site, held in models.sites.items() if held == direction), None)
        model_of = models.of_site(holder) if holder else models.of_direction(direction)
        translator = Translator(model_of)
        sources, written = [pair.source for pair in pairs], list[str]()
        for first in range(0, len(sources), AT_ONCE):
            report(f"{run.name}, {direction}", first, len(sources))
            written += translator.translate(sources[first : first + AT_ONCE])
        made[str(direction)] = Translated(sources, written, [pair.target for pair in pairs], direction.target)
    # A bar shows the progress, so messages about building COMET's environment are discarded.
    measured = measure(made, metrics, model, lambda _: None)
    entries: dict[str, dict[str, Any]] = {}  # in the form of a site's entry in scores.json
    for name, text in made.items():
        about = {"direction": name, "sentences": len(text.sources), "signature": measured[name]["bleu"].signature}
        entries[name] = about | {OF_TEXT[metric].key: each.corpus for metric, each in measured[name].items()}
    scores = {f"macro_{BLEU.key}": fmean(entry[BLEU.key] for entry in entries.values()), "sites": entries}
    costs = {key: run.scores[key] for key in COSTS if key in run.scores}
    return replace(run, scores={**scores, **costs}, texts=made)
