"""The page of a run folder, whatever its files hold."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report.run_page import write_report

FILES = ("run.json", "sites.json", "clusters.json", "scores.json", "traffic.json", "rounds.jsonl")
VALUES = (
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    10**400,
    2**63,
    -1,
    True,
    None,
    "\x1b[2J\ud800<script>!",
    [],
    [1e308, None],
    {},
    {"a": 1e308},
)


def with_every_leaf(content: Any, value: Any) -> Any:
    """The same with `value` in place of every leaf."""
    if isinstance(content, dict):
        return {key: with_every_leaf(item, value) for key, item in content.items()}
    return [with_every_leaf(item, value) for item in content] if isinstance(content, list) else value


def without_each(content: Any) -> Iterator[Any]:
    """The same without one key after another, at any depth; and with its keys of another name."""
    if isinstance(content, dict):
        for key, item in content.items():
            yield {other: of for other, of in content.items() if other != key}
            yield {**{other: of for other, of in content.items() if other != key}, "\x1b[2J\ud800<b>": item}
            for changed in without_each(item):
                yield {**content, key: changed}


def read(file: Path) -> list[Any]:
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    return [json.loads(line) for line in lines]


def write(file: Path, contents: list[Any]) -> None:
    file.write_text("\n".join(json.dumps(content) for content in contents) + "\n")


@pytest.mark.parametrize("name", FILES)
def test_a_page_is_made_of_whatever_values_stand_in_a_file(finished_run: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns("checkpoints", "sites"))
    contents = read(folder / name)
    for value in VALUES:
        # A round is known by its number, without which there is none.
        changed = [{**with_every_leaf(one, value), **({"round": one["round"]} if "round" in one else {})} for one in contents]
        write(folder / name, changed)
        page = write_report(folder).read_text(encoding="utf-8")
        assert "<script>!" not in page
        assert "\x1b" not in page


@pytest.mark.parametrize("name", FILES)
def test_a_page_is_made_where_keys_are_missing_or_others(finished_run: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns("checkpoints", "sites"))
    contents = read(folder / name)
    for changed in list(without_each(contents[-1]))[::19]:
        write(folder / name, [*contents[:-1], changed])
        assert "\x1b" not in write_report(folder).read_text(encoding="utf-8")
