"""`make options`: write pyproject.toml's `[tool.flwr.app.config]` and docs/options.md from the table of options."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from fedlingua.common.files import CHECKOUT, replace_text
from fedlingua.settings import table
from fedlingua.settings.options import PAPERS, Option, Scalar
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING, MAY_CHANGE, OPTIONS, SECTIONS

PROJECT, PAGE = CHECKOUT / "pyproject.toml", CHECKOUT / "docs" / "options.md"
BEGIN, END = "[tool.flwr.app.config]\n", "\n# --- The gate"
"""The defaults are written between these lines of pyproject.toml."""
_COLUMN, _WIDTH = 37, 130


def meanings() -> dict[str, str]:
    """Map each key to its meaning: the text below its field in the table, on one line."""
    by_attribute = {}
    for section in ast.parse(inspect.getsource(table)).body:
        body = section.body if isinstance(section, ast.ClassDef) else []
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                assert isinstance(field.target, ast.Name)
                by_attribute[field.target.id] = " ".join(str(below.value.value).split())
    return {key: by_attribute[option.attribute] for key, option in OPTIONS.items()}


def defaults_text() -> str:
    """Return all keys with their defaults as TOML: those without a group first, then a table for each group."""
    said, lines, group = meanings(), list[str](), ""
    for key, option in sorted(OPTIONS.items(), key=lambda item: item[0].rpartition(".")[0]):
        if (of := key.rpartition(".")[0]) != group:
            group = of
            lines += ["", f"{BEGIN.rstrip()[:-1]}.{group}]"]
        comment = f"{said[key]} {_conditions(option, said[key])}".strip()
        first = f"{key.removeprefix(f'{group}.')} = {_toml(option.default)}".ljust(_COLUMN - 1)
        wrapped = textwrap.wrap(comment, _WIDTH - _COLUMN - 2, break_on_hyphens=False, break_long_words=False)
        starts = [first, *[" " * (_COLUMN - 1)] * len(wrapped)]
        lines += [f"{start} # {line}" for start, line in zip(starts, wrapped, strict=False)]
    return "\n".join(lines) + "\n"


def _conditions(option: Option, meaning: str) -> str:
    """Return in brackets: the choices unless the meaning names all, the condition for an effect, the papers' values if they differ."""
    unsaid = [choice for choice in filter(None, option.choices) if not re.search(rf"(?<![\w-]){choice}(?![\w-])", meaning)]
    named = [f"one of {', '.join(filter(None, option.choices))}"] if unsaid and not option.check else []
    named += [f"with {option.when.words}"] if option.when.words else []
    named += [f"{PAPERS[name]}: {_toml(value)}" for name, value in option.papers.items() if value != option.default]
    return f"[{'; '.join(named)}]" if named else ""


def page() -> str:
    said = meanings()
    parts = [
        "# Options of a run",
        "Written by `make options` from `src/fedlingua/settings/table.py`, which defines every option once. Set one in an experiment "
        "file (`adapter.dim = 64`, or `dim = 64` below `[adapter]`), with `--set adapter.dim=64`, or to Flower itself: "
        "`flwr run . --run-config 'adapter.dim=64'`.",
        "Behind each key: its default, its values, its meaning and, in square brackets, under which other settings it matters, if not "
        "under all. The papers' values stand in `pyproject.toml` and in `experiments/`.",
    ]
    for section in SECTIONS:
        rows = [_row(option, said[key]) for key, option in OPTIONS.items() if option.section is section]
        parts += [f"## {str(inspect.getdoc(section)).removesuffix('.')}", "\n".join(rows)]
    parts += [
        "## On resuming",
        f"A resumed run may change {_listed(MAY_CHANGE)}. None of these is part of a run's hash. It may also have "
        "another number of rounds: [Go on with a run](guides/running.md#go-on-with-a-run).",
        "## At a site",
        f"A site approves every option except {_listed(CHANGES_WITHOUT_ASKING)}, which change neither its work nor what leaves it.",
    ]
    return "\n\n".join(parts) + "\n"


def _row(option: Option, meaning: str) -> str:
    values = ", ".join(f"`{choice}`" for choice in filter(None, option.choices)) if option.choices else option.value_type.__name__
    if option.check and option.choices:
        values = option.value_type.__name__
    meaning += f" [with {option.when.words}]" if option.when.words else ""
    bounds = option.bounds
    for words, sign in {"at least ": "≥", "more than ": ">", "at most ": "≤", "below ": "<"}.items():
        bounds = bounds.replace(words, sign)
    shown = ", ".join(filter(None, [values if values.startswith("`") else "", bounds]))  # the default shows the type
    return f"- `{option.key}={_toml(option.default)}`{shown and f' ({shown})'}: {meaning}"


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _toml(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)


def with_defaults(project: str) -> str:
    """Return the text of pyproject.toml with the table's defaults filled in."""
    before, begin, rest = project.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"pyproject.toml lacks {BEGIN!r}"
    assert end, f"pyproject.toml lacks {END!r} behind it"
    return before + begin + defaults_text() + end + after


def write(project: Path = PROJECT, to: Path = PAGE) -> None:
    replace_text(project, with_defaults(project.read_text(encoding="utf-8")))
    replace_text(to, page())


if __name__ == "__main__":
    write()
