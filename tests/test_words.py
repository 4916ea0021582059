"""The glossary has one line a word, and names that say nothing become fewer."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
STILL = {"found": 0, "told": 1, "kept": 4, "kinds": 2, "came": 0, "crew": 0, "variants": 0, "question": 0, "conversation": 0}
"""Name that a newcomer would not look for -> how many variables, parameters and attributes still have it, at most: lower it as they go."""
GONE = ("readings", "findings", "more_scores")


def named(tree: ast.AST) -> list[str]:
    """Names of variables, parameters and attributes that a module defines, without underscores before them."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append(node.attr)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
    return [name.lstrip("_") for name in names]


def test_the_glossary_has_one_line_a_word_in_order() -> None:
    lines = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").split("|---|---|\n")[1].splitlines()
    words = [line.split("|")[1].strip() for line in lines]
    assert words == sorted(set(words), key=str.lower)
    assert len(words) >= 40
    assert all(line.count("|") == 3 and line.endswith(". |") for line in lines)


def test_names_that_say_nothing_become_fewer() -> None:
    files = [
        path
        for folder in ("src/fedlingua", "src/fedlingua_lab", "strategies", "clients")
        for path in (ROOT / folder).rglob("*.py")
    ]
    count = Counter(name for path in files for name in named(ast.parse(path.read_text(encoding="utf-8"))))
    assert {name: count[name] for name in (*STILL, *GONE) if count[name] > STILL.get(name, 0)} == {}
