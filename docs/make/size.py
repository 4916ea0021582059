"""How wide the house is, read from its source alone: `python docs/make/size.py`, for another checkout with its folder as argument.

Characters are those of Python files, each line stripped: wide lines hide no code from them, as they do from a count of lines.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APART = ("fedlingua.desk", "fedlingua_lab", "fedlingua_demo")
"""Packages in src/ that no node runs."""


def characters(file: Path) -> int:
    """Count the characters of a file without indentation and line ends."""
    return sum(len(line.strip()) for line in file.read_text(encoding="utf-8").split("\n"))


def python_files(root: Path) -> dict[str, Path]:
    """Map the dotted names of all modules in src, strategies and clients to their files."""
    folders = {"src": root / "src", "strategies": root, "clients": root}
    files = [(file, base) for top, base in folders.items() for file in sorted((root / top).rglob("*.py"))]
    return {".".join(file.relative_to(base).with_suffix("").parts): file for file, base in files}


def area_of(module: str) -> str:
    """Return the part of the house that a module is counted in."""
    return next((name for name in APART if module == name or module.startswith(f"{name}.")), "node")


def options(root: Path) -> list[str]:
    """List the attributes of `Settings` that are options: fields of the table with a value made by `option`."""
    tree = ast.parse((root / "src/fedlingua/settings/table.py").read_text(encoding="utf-8"))
    fields = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call)]
    return [f.target.id for f in fields if isinstance(f.target, ast.Name) and ast.unparse(f.value).startswith("option(")]


def derived(root: Path) -> list[str]:
    """List the properties and methods of `Settings`."""
    tree = ast.parse((root / "src/fedlingua/settings/config.py").read_text(encoding="utf-8"))
    (settings,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    return [node.name for node in settings.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def reads(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, attribute) of each read of an attribute of `settings` in code that nodes run, outside of its own package."""
    known = {*options(root), *derived(root)}
    for module, file in python_files(root).items():
        if area_of(module) == "node" and not module.startswith("fedlingua.settings."):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr in known
                    and ast.unparse(node.value).split(".")[-1] == "settings"
                ):
                    yield module, node.attr


def rules(root: Path) -> int:
    """Count the rules on which options exclude each other: entries of the tables in conflicts.py, and messages that it yields."""
    tree = ast.parse((root / "src/fedlingua/settings/conflicts.py").read_text(encoding="utf-8"))
    tables = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)]
    yields = [node for node in ast.walk(tree) if isinstance(node, ast.Yield | ast.YieldFrom)]
    return sum(len(table.keys) for table in tables) + len(yields)


def sizes(root: Path) -> dict[str, int]:
    """Return what is counted -> how much of it there is."""
    counted = {"characters": 0, **{f"characters, {area}": 0 for area in ("node", *APART)}}
    for module, file in python_files(root).items():
        number = characters(file)
        counted["characters"] += number
        counted[f"characters, {area_of(module)}"] += number
    read = list(reads(root))
    return {
        **counted,
        "options": len(options(root)),
        "reads of settings in node code": len(read),
        "modules of node code with such a read": len({module for module, _ in read}),
        "rules on which options exclude each other": rules(root),
    }


if __name__ == "__main__":
    for what, number in sizes(Path(sys.argv[1]) if sys.argv[1:] else ROOT).items():
        print(f"{number:>10,}  {what}")
