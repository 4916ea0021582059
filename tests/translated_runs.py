"""Runs that have scores and translations, as `compare` reads them: two sites whose translations are spoiled by so many words."""

import json
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.translator import Translator
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated

REFERENCES = {
    "a": [
        "le chat est sur le tapis",
        "il fait très beau aujourd'hui",
        "elle lit un grand livre",
        "nous allons à la maison ce soir",
    ],
    "b": ["der Hund schläft im Haus", "wir gehen heute in die Stadt", "sie hat ein rotes Auto", "das Wetter ist heute sehr gut"],
}
DIRECTIONS = {"a": "de-fr", "b": "pl-de"}


def spoiled(sentence: str, words: int) -> str:
    """The last words are wrong."""
    kept = sentence.split()
    return " ".join([*kept[: len(kept) - words], *["x"] * words])


def make_run(
    folder: Path, method: str, wrong: dict[str, int], seed: int = 2022, texts: bool = True, mark: str = "s", **changes: object
) -> Path:
    """A run's folder whose site `name` spoils so many words of each sentence; its scores are those of its translations. mark: begins every
    source."""
    folder.mkdir(parents=True)
    about = {
        "status": "completed",
        "method": method,
        "seed": seed,
        "rounds": 6,
        "seconds": 12.5,
        "config": {"task": "translation"},
    }
    (folder / "run.json").write_text(json.dumps(about | changes))
    sites = {}
    bleu = TEXT_METRICS["bleu"]
    for site, words in wrong.items():
        hypotheses = [spoiled(line, words) for line in REFERENCES[site]]
        text = Translated(REFERENCES[site], hypotheses, REFERENCES[site], DIRECTIONS[site][3:])
        sites[site] = {
            "direction": DIRECTIONS[site],
            "sentences": 4,
            "signature": "s",
            "bleu": bleu.of(bleu.count(text)),
            "chrf": 1.0,
        }
        if texts:
            lines = [
                f"{mark}{n}\t{line}\tbase\t{made}"
                for n, (line, made) in enumerate(zip(REFERENCES[site], hypotheses, strict=True))
            ]
            (folder / "sites" / site).mkdir(parents=True)
            (folder / "sites" / site / "translations.tsv").write_text(
                "\n".join(["source\treference\tbase\thypothesis", *lines]) + "\n"
            )
    scores = {
        "sites": sites,
        "split": "test",
        "macro_bleu": 1.0,
        "uplink_bytes_per_round": 1000,
        "downlink_bytes_per_round": 2000,
    }
    (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def translator_of_site(run: Path, site: str, decoding: Decoding | None = None) -> Translator:
    """The model of a site after a run."""
    return Translator(RunModels(run).of_site(site), decoding)


def translator_of_direction(run: Path, direction: Direction, decoding: Decoding | None = None) -> Translator:
    """The model of a run's clusters for a direction."""
    return Translator(RunModels(run).of_direction(direction), decoding)
