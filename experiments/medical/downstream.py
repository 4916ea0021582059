"""What the encoders of a suite are worth to their sites: tagging of diseases and chemicals, and a model of each site's own.

    .venv/bin/python experiments/medical/downstream.py ner --data DIR --runs DIR [--jobs N] [-- FINETUNE-OPTIONS]
    .venv/bin/python experiments/medical/downstream.py personal --data DIR --runs DIR [--jobs N] [-- PERSONALIZE-OPTIONS]

First: fedlingua suite experiments/medical/table3_small.toml --data DIR --runs DIR. `ner` fine-tunes the encoder before pre-training, the
federated and the centralized one, under each seed; `personal` lets the sites of the federated runs go on by themselves. What is done
already is not done again. Figures go to experiments/results/medical/: ner.json, ner.md, personal.json, personal.md.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedlingua.desk.report.keep import read_kept_runs

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results" / "medical"
SUITE = RESULTS / "table3_small"
BASE, FEDERATED, CENTRALIZED = "base", "server-adam", "centralized"
CORPORA = ("NCBI-disease-IOB", "BC5CDR-IOB")
F1 = ("micro_f1", "macro_f1", "weighted_f1")
MODELS = ("federated", "personal", "apfl", "chosen")

Json = dict[str, Any]


def fedlingua(*words: str) -> None:
    """A command of the same environment, whose output is shown when it fails."""
    command = [sys.executable, "-c", "from fedlingua.desk.cli.app import main; main()", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: fedlingua {' '.join(words)}", flush=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def tag(suite: Json, data: Path, runs: Path, jobs: int, options: list[str]) -> None:
    """Fine-tune every encoder on every corpus, and write the F1 of its test split."""

    def one(row: str, seed: int, corpus: str) -> Json:
        folder = runs / f"ner-{corpus}-{row}-{seed}"
        if not (folder / "finetuning.json").is_file():
            name = suite["settings"]["backbone"]
            encoder = ["--encoder", name] if row == BASE else ["--run", str(runs / suite["runs"][f"{row}-{seed}"]["folder"])]
            text = str(data / "ner_biomed_en" / corpus)
            fedlingua("finetune", "ner", *encoder, "--data", text, "--to", str(folder), "--seed", str(seed), *options)
        about = json.loads((folder / "finetuning.json").read_text())
        told = {split: {name: about[split][name] for name in about[split] if name.endswith("_f1")} for split in ("dev", "test")}
        keys = ("settings", "best_epoch", "seconds")
        return {"encoder": row, "corpus": corpus, "seed": seed, **told, **{key: about[key] for key in keys}}

    asked = [(row, seed, corpus) for corpus in CORPORA for row in (BASE, FEDERATED, CENTRALIZED) for seed in suite["seeds"]]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda which: one(*which), asked))
    lines = [f"| corpus | encoder | {' | '.join(F1)} |", "|---|---|---|---|---|"]
    for corpus in CORPORA:
        for row in (BASE, FEDERATED, CENTRALIZED):
            of_row = [each["test"] for each in found if (each["encoder"], each["corpus"]) == (row, corpus)]
            values = [[100 * each[name] for each in of_row] for name in F1]
            lines.append(f"| {corpus} | {row} | " + " | ".join(f"{fmean(f1):.2f} ± {stdev(f1):.2f}" for f1 in values) + " |")
    heading = (
        "# Tagging after pre-training\n\nF1 of entities on the test split, in percent: mean ± sample standard deviation over "
    )
    write("ner", found, f"{heading}{len(suite['seeds'])} seeds of pre-training and fine-tuning.\n\n" + "\n".join(lines) + "\n")


def personalize(suite: Json, data: Path, runs: Path, jobs: int, options: list[str]) -> None:
    """Let the sites of every federated run go on by themselves, and say per site what that is worth."""
    own = {site: f"silo-{site}" for site in suite["sites"]}

    def one(seed: int) -> list[Json]:
        folder = runs / suite["runs"][f"{FEDERATED}-{seed}"]["folder"]
        file = folder / "personalization.json"
        if not file.is_file():
            fedlingua("personalize", "--run", str(folder), "--data", str(data), *options)
        found: list[Json] = json.loads(file.read_text())
        return found

    with ThreadPoolExecutor(jobs) as pool:
        found = [about for of_seed in pool.map(one, suite["seeds"]) for about in of_seed]
    keys = ("site", "seed", "epochs", "learning_rate", "round", "chosen_alpha", "test", "seconds", "alpha")
    kept = [{key: about[key] for key in keys} for about in found]
    lines = [
        "| site | alone | federated | personal | APFL's alpha | dev's alpha | alpha, APFL | alpha, dev | federated over alone |"
        " interpolated over the better of both |",
        "|---|" + "---|" * 9,
    ]
    for site, row in own.items():
        of_site = [each for each in kept if each["site"] == site]
        alone = fmean(
            line["scores"]["sites"][site]["perplexity"] for line in read_kept_runs(SUITE).values() if line["method"] == row
        )
        mean = {model: fmean(each["test"][model]["perplexity"] for each in of_site) for model in MODELS}
        alphas = [fmean(each[key] for each in of_site) for key in ("alpha", "chosen_alpha")]
        gains = [alone - mean["federated"], min(mean["federated"], mean["personal"]) - mean["apfl"]]
        numbers = [f"{value:.2f}" for value in (alone, *mean.values(), *alphas)] + [f"{gain:+.2f}" for gain in gains]
        lines.append(f"| {site} | " + " | ".join(numbers) + " |")
    heading = (
        "# A model of each site's own\n\nPerplexity on the site's test text, mean over the federated runs' seeds: of its own text's model "
        "(`silo-…`, one seed), of the federation's, of what the site makes of that by itself, and between the two (equation 3), with alpha "
        "learned (APFL) or chosen on dev. The last two columns are gains; below 0 is worse.\n\n"
    )
    write("personal", kept, heading + "\n".join(lines) + "\n\n" + table_6(kept, list(own)))


def table_6(kept: list[Json], sites: list[str]) -> str:
    """The paper's table 6: accuracy of masked pieces on test, in percent, mean over seeds; bold is a site's best."""
    lines = ["| accuracy | " + " | ".join(sites) + " |", "|---|" + "---|" * len(sites)]
    mean = {
        model: [f"{100 * fmean(each['test'][model]['accuracy'] for each in kept if each['site'] == site):.2f}" for site in sites]
        for model in MODELS
    }
    best = [max(values, key=float) for values in zip(*mean.values(), strict=True)]
    for model, name in zip(
        MODELS, ("federated", "personal", "interpolated, APFL's alpha", "interpolated, dev's alpha"), strict=True
    ):
        shown = [f"**{value}**" if value == most else value for value, most in zip(mean[model], best, strict=True)]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "Accuracy of masked pieces on test, in percent, as in the paper's table 6:\n\n" + "\n".join(lines) + "\n"


def write(name: str, content: list[Json], markdown: str) -> None:
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown)
    print(markdown)


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Before and after the first --."""
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ner", "personal"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="the suite's runs")
    parser.add_argument("--jobs", type=int, default=1, help="side by side")
    # What stands after -- is for fedlingua finetune or personalize.
    own, passed_on = _parted(sys.argv[1:])
    given = parser.parse_args(own)
    suite = json.loads((SUITE / "suite.json").read_text())
    work = tag if given.what == "ner" else personalize
    work(suite, given.data.resolve(), given.runs.resolve(), given.jobs, passed_on)


if __name__ == "__main__":
    main()
