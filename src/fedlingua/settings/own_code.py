"""Classes that the keys `strategy` and `client` name, with or without arguments: "my_file:Mine", "my_file:Mine(q=0.2)"."""

import ast
import inspect
import symtable
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError, without_words
from fedlingua.common.languages import nearest


def named_class(key: str, value: str, base: str, more: str = "") -> tuple[Any, dict[str, Any]]:
    """Import the class that a key names, and return it with the arguments given there.

    base: The full name of what it has to be a subclass of, which is not imported: a subclass imports it. more: Words about it.

    Raises:
        ConfigError: There is no such module or subclass, importing it fails, or the arguments are not name=value.
    """
    (module_name, _, call), said = value.partition(":"), f"{key} = {value!r}"
    class_name = call.partition("(")[0]
    try:
        names = _names_in(module_name)
        if names and class_name not in names:  # told before the module loads what it imports
            raise ConfigError(f"{said}: {module_name} has no {class_name!r}{nearest(class_name, names)}")
        module = import_module(module_name)
    except ConfigError:
        raise
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        why = "its file has to lie beside pyproject.toml" if missing else f"mend the {without_words(error)}"
        raise ConfigError(f"{said}: cannot import {module_name!r} ({error}); {why}") from error
    named = getattr(module, class_name, None)
    if named is None:
        raise ConfigError(f"{said}: {module_name} has no {class_name!r}{nearest(class_name, vars(module))}")
    of, _, base_name = base.rpartition(".")
    wanted = getattr(sys.modules.get(of), base_name, None)
    if not (isinstance(named, type) and wanted and issubclass(named, wanted)):
        raise ConfigError(f"{said}: wanted a subclass of {base}{more}")
    try:
        parsed = ast.parse(call, mode="eval").body
        given = parsed if isinstance(parsed, ast.Call) else ast.Call(parsed, [], [])
        if given.args or any(keyword.arg is None for keyword in given.keywords):
            raise ValueError("arguments have names")
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in given.keywords}
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{said}: its arguments do not read; give them as in FedTrimmedAvg(beta=0.2)") from error
    return named, arguments


def _names_in(module_name: str) -> set[str]:
    """Return the names that a module's file defines; empty if it may have more. Raises SyntaxError."""
    spec = find_spec(module_name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return set()
    source = Path(spec.origin).read_text(encoding="utf-8")
    if "import *" in source or "__getattr__" in source or "global" in source:
        return set()
    return {each.get_name() for each in symtable.symtable(source, spec.origin, "exec").get_symbols() if each.is_local()}


def check_arguments(key: str, value: str, named: type, base: type, arguments: dict[str, Any]) -> None:
    """Raise ConfigError unless a class takes the arguments besides those of `base`, which a run passes by position."""
    try:
        inspect.signature(named).bind(*inspect.signature(base).parameters, **arguments)
    except TypeError as error:
        raise ConfigError(f"{key} = {value!r}: {named.__name__} cannot be made ({error})") from error
