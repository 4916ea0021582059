"""experiments/figures.py: what a dot stands for, from runs made up here."""

import json
from pathlib import Path
from typing import Any

from experiments.figures import Coded, Gain, Spent, coded, gains, spent
from experiments.verify import Result


def suite(folder: Path, rows: dict[str, tuple[str, list[dict[str, Any]]]]) -> Result:
    """A folder of kept runs. rows: name -> its code, and the scores of each seed."""
    lines = [
        {"method": name, "seed": seed, "run": {"config": {"send.code": code, "send.code-down": "same"}}, "scores": scores}
        for name, (code, seeds) in rows.items()
        for seed, scores in enumerate(seeds)
    ]
    folder.mkdir()
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Result(folder, folder.parent)


def scores(bleu: float, up: int, down: int, fp32: int) -> dict[str, Any]:
    return {"macro_bleu": bleu, "total_bytes": {"up": up, "down": down, "fp32": fp32}}


def test_a_gain_is_sure_where_its_interval_leaves_out_nothing() -> None:
    sites = {
        name: {"gain": {"bleu": bleu, "low": low, "high": high}}
        for name, bleu, low, high in [("a", 2.0, 0.1, 4.0), ("b", 1.0, -0.1, 2.0), ("c", -3.0, -4.0, -2.0)]
    }
    assert gains([{"sites": sites}]) == [Gain(2.0, True), Gain(1.0, False), Gain(-3.0, True)]


def test_codes_are_compared_with_float32_in_all_rounds(tmp_path: Path) -> None:
    whole = suite(tmp_path / "whole", {"fed": ("none", [scores(30, 500, 500, 1000), scores(32, 500, 500, 1000)])})
    half = suite(
        tmp_path / "half",
        {
            "base": ("none", [scores(10, 1, 1, 0)]),
            "fed+4bit": ("4bit", [scores(31, 60, 40, 500), scores(33, 80, 20, 500)]),
            "fed+kept": ("sign", [scores(40, 30, 20, 500) | {"macro_federated_bleu": 29}]),
        },
    )
    assert coded(half, whole, "fed") == [Coded("4bit", 0.1, 1.0), Coded("sign", 0.05, -2.0)]


def test_what_a_rule_spends_is_all_bytes_of_a_run_over_seeds(tmp_path: Path) -> None:
    rules = {
        "base": ("none", [scores(10, 0, 0, 0)]),
        "fed": ("none", [scores(30, 10**6, 3 * 10**6, 0), scores(34, 2 * 10**6, 2 * 10**6, 0)]),
        "alone": ("none", [scores(20, 10**5, 0, 0)]),
    }
    assert spent(suite(tmp_path / "rules", rules)) == [
        Spent("base", 0.0, 10.0),
        Spent("fed", 4.0, 32.0),
        Spent("alone", 0.1, 20.0),
    ]
