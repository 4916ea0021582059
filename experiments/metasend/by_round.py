"""BLEU and what is not sent, round by round (the journal's figure 7), of a suite whose sites translated their dev text after each round.

    python -m experiments.metasend.by_round RUNS RESULT

RUNS is the suite's folder of runs, RESULT its result folder, which gets by_round.json and by_round.md.
"""

import json
import sys
from pathlib import Path
from statistics import fmean

from fedlingua.common.languages import parse_direction
from fedlingua.desk.report.read import read_run
from fedlingua.desk.report.translations import Text, read_translations
from fedlingua.desk.templates import markdown_table
from fedlingua.evaluation.scores import bleu_score, score_sums


def bleu(text: Text, number: int) -> float:
    pairs = [(each.translations[number], each.reference) for each in text.sentences]
    hypotheses, references = zip(*pairs, strict=True)
    return bleu_score(score_sums(hypotheses, references, parse_direction(text.direction).target))


def by_round(run: Path) -> list[dict[str, float]]:
    """Return macro BLEU on dev after each round, from the base on, and the mean share of its numbers that a site did not send."""
    texts, _ = read_translations(run)
    rounds = {each.number: each for each in read_run(run).rounds}
    found = []
    for number in texts[0].rounds:
        sent = [1.0 if site.numbers_share is None else site.numbers_share for site in rounds[number].sites.values()]
        not_sent = 1 - fmean(sent) if number else 0.0
        found.append({"bleu": round(fmean(bleu(text, number) for text in texts), 2), "not_sent": round(not_sent, 3)})
    return found


def main(runs: Path, result: Path) -> None:
    suite = json.loads((result / "suite.json").read_text(encoding="utf-8"))
    rows = {name: by_round(runs / Path(run["folder"]).name) for name, run in suite["runs"].items()}
    (result / "by_round.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    numbers = range(max(map(len, rows.values())))
    head = ["row and seed", *map(str, numbers)]
    scores = [head, *([name, *(f"{each['bleu']:.1f}" for each in row)] for name, row in rows.items())]
    shares = [head, *([name, *(f"{100 * each['not_sent']:.0f}" for each in row)] for name, row in rows.items())]
    (result / "by_round.md").write_text(
        f"# {suite['title']}\n\nMacro BLEU on dev after each round; 0 is the base.\n\n{markdown_table(scores)}\n\n"
        f"Numbers of its update that a site did not send, in percent, mean over sites.\n\n{markdown_table(shares)}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
