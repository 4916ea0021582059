"""Imports point one way: {clients, strategies, fedlingua_lab} -> fedlingua, and inside a package never in a circle."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs.make.size import sizes

ROOT = Path(__file__).parents[1]
SOURCES = {"fedlingua": ROOT / "src", "fedlingua_lab": ROOT / "src", "clients": ROOT, "strategies": ROOT}


def module_files(package: str, folder: Path) -> dict[str, Path]:
    """Dotted name -> file of every module of a package; a package goes by its own name."""
    files = {}
    for path in sorted((folder / package).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def statements(tree: ast.AST, at_module_level: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements, those inside functions too unless only the module level is asked for."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (at_module_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from statements(node, at_module_level)


def imports(name: str, path: Path, at_module_level: bool = False) -> set[str]:
    """Dotted names that a file imports, each both as `from` names it and with what is taken from it."""
    found: set[str] = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text(), str(path)), at_module_level):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        origin = node.module or ""
        if node.level:
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*parents, *origin.split(".")] if origin else parents)
        found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return found


def import_graph(files: Mapping[str, Path], at_module_level: bool = False) -> dict[str, set[str]]:
    """Module -> modules of the same package that it imports; `from package import module` counts for the module alone."""
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        named = imports(name, path, at_module_level) & set(files) - {name}
        graph[name] = {other for other in named if not any(longer.startswith(f"{other}.") for longer in named)}
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The first circle found, its start repeated at the end; empty when there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := visit(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def among_sub_packages(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph with every module replaced by the part of the package it lies in: fedlingua.corpora.read by fedlingua.corpora."""
    merged: dict[str, set[str]] = {}
    for name, others in graph.items():
        part = ".".join(name.split(".")[:2])
        merged.setdefault(part, set()).update(".".join(other.split(".")[:2]) for other in others)
        merged[part].discard(part)
    return merged


MODULES = {package: module_files(package, folder) for package, folder in SOURCES.items()}


def test_all_packages_are_looked_at() -> None:
    assert "fedlingua.corpora.split" in MODULES["fedlingua"]
    assert "clients.client_app" in MODULES["clients"]
    assert "strategies.server_app" in MODULES["strategies"]
    assert "fedlingua.common.errors" in import_graph(MODULES["fedlingua"])["fedlingua.settings.checks"]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("fedlingua", {"clients", "strategies", "fedlingua_lab"}),
        ("fedlingua_lab", {"clients", "strategies"}),
        ("clients", {"strategies", "fedlingua_lab"}),
        ("strategies", {"clients", "fedlingua_lab"}),
    ],
)
def test_no_module_imports_against_the_arrow(package: str, forbidden: set[str]) -> None:
    for name, path in MODULES[package].items():
        against = {other for other in imports(name, path) if other.split(".")[0] in forbidden}
        assert not against, f"{path.relative_to(ROOT)} imports {', '.join(sorted(against))}"


def with_packages(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph as Python goes through it: whoever imports a module from elsewhere imports the packages that it lies in first."""

    def above(name: str) -> set[str]:
        return {name.rsplit(".", steps)[0] for steps in range(1, name.count("."))}

    return {name: others | {p for other in others for p in above(other) - above(name) - {name}} for name, others in graph.items()}


@pytest.mark.parametrize("package", SOURCES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    found = circle(with_packages(import_graph(MODULES[package])))
    assert not found, " -> ".join(found)


def test_nothing_that_a_node_runs_imports_the_desk() -> None:
    for package in SOURCES:
        for name, path in MODULES[package].items():
            if not name.startswith(("fedlingua.desk", "fedlingua_lab")):
                against = {other for other in imports(name, path) if other.startswith("fedlingua.desk")}
                assert not against, f"{path.relative_to(ROOT)} imports {', '.join(sorted(against))}"


@pytest.mark.parametrize("package", ["fedlingua", "fedlingua_lab", "strategies"])
def test_no_sub_packages_import_each_other_in_a_circle(package: str) -> None:
    found = circle(among_sub_packages(import_graph(MODULES[package])))
    assert not found, " -> ".join(found)


def rooms() -> dict[str, set[str]]:
    """Room -> the rooms that it imports from: clients, strategies, and the packages of fedlingua, the desk being one of them; no lab."""
    files = {name: path for package in SOURCES if package != "fedlingua_lab" for name, path in MODULES[package].items()}

    def room(name: str) -> str:
        return ".".join(name.split(".")[: 2 if name.startswith("fedlingua.") else 1])

    graph: dict[str, set[str]] = {}
    for name, others in import_graph(files).items():
        graph.setdefault(room(name), set()).update(room(other) for other in others if other != "fedlingua")
    return {name: others - {name} for name, others in graph.items() if name != "fedlingua"}


def floor(name: str, graph: Mapping[str, set[str]]) -> int:
    """How many rooms stand below one another under a room, itself included."""
    return 1 + max((floor(other, graph) for other in graph[name]), default=0)


def test_the_house_stays_small() -> None:
    """The whole checkout may have 25 rooms, 12 floors and 150 imports between rooms; benchmarks and the like are not counted here."""
    graph = rooms()
    assert len(graph) <= 19
    assert max(floor(name, graph) for name in graph) <= 10
    assert sum(map(len, graph.values())) <= 110


MOST = {
    "characters": 2_149_381,
    "characters, node": 1_224_824,
    "characters, fedlingua_lab": 238_607,
    "options": 129,
    "reads of settings in node code": 637,
    "rules on which options exclude each other": 87,
}


def test_the_house_grows_no_wider() -> None:
    """1.62 million characters, 95 options, 400 reads and 60 rules are wanted. The bounds follow every change that takes some away."""
    counted = sizes(ROOT)
    assert {what: number for what, number in counted.items() if number > MOST.get(what, number)} == {}


def test_the_width_of_a_small_house_is_counted(tmp_path: Path) -> None:
    files = {
        "src/fedlingua/settings/table.py": 'class Run:\n    rounds: int = option(16)\n    """How many."""\n',
        "src/fedlingua/settings/config.py": "class Settings:\n    def how(self): ...\n",
        "src/fedlingua/settings/conflicts.py": 'A: dict = {"a": 1, "b": 2}\ndef f():\n    yield "c"\n',
        "src/fedlingua/desk/run.py": "settings.rounds\n",
        "src/fedlingua_lab/suite.py": "x\n",
        "strategies/strategy.py": "a = self.settings.rounds + settings.how + other.rounds\n",
        "clients/site.py": "if True:\n    settings.unknown\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    counted = sizes(tmp_path)
    assert counted["characters, fedlingua_lab"] == 1
    assert counted["characters, fedlingua.desk"] == len("settings.rounds")
    assert counted["characters"] == sum(len(line.strip()) for text in files.values() for line in text.splitlines())
    assert counted["options"] == 1
    assert counted["reads of settings in node code"] == 2
    assert counted["rules on which options exclude each other"] == 3


def test_floors_are_counted_from_below() -> None:
    graph: dict[str, set[str]] = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert [floor(name, graph) for name in "abc"] == [3, 2, 1]


def test_experiments_are_few_files() -> None:
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "experiments"], capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("no git checkout")
    assert len(tracked.stdout.splitlines()) <= 378


def test_every_form_of_import_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    for file, text in {
        "__init__.py": "",
        "a.py": "import p.b\n",
        "b.py": "from p import c\n",
        "c.py": "def late():\n    from p.q.d import name\n",
        "q/__init__.py": "from .d import name\n",
        "q/d.py": "from . import e\nfrom ..a import name\n",
        "q/e.py": "if True:\n    import p.f as f\n",
        "f.py": "import os, clients.hosted\n",
    }.items():
        (package / file).write_text(text)
    files = module_files("p", tmp_path)
    assert import_graph(files) == {
        "p": set(),
        "p.a": {"p.b"},
        "p.b": {"p.c"},
        "p.c": {"p.q.d"},
        "p.q": {"p.q.d"},
        "p.q.d": {"p.q.e", "p.a"},
        "p.q.e": {"p.f"},
        "p.f": set(),
    }
    assert circle(import_graph(files)) == ["p.a", "p.b", "p.c", "p.q.d", "p.a"]
    assert import_graph(files, at_module_level=True)["p.c"] == set()
    assert imports("p.f", files["p.f"]) == {"os", "clients.hosted"}


def test_circles_are_found_and_diamonds_are_none() -> None:
    assert circle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    # No two modules meet in a circle here, but their packages do.
    graph = {"p.a.x": {"p.b.x"}, "p.b.y": {"p.a.y"}, "p.a.z": {"p.a.x"}}
    assert circle(graph) == []
    assert circle(among_sub_packages(graph)) == ["p.a", "p.b", "p.a"]
