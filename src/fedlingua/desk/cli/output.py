"""The output of every command: words and tables, or with `--format json` one JSON document on standard output.

Exit codes: 0, success; 1, an error whose message says how to fix it, for which commands raise FedlinguaError; 2, a wrong command
line; 70, a fault of fedlingua itself, with a traceback; 130, ended by Ctrl-C; 141, the output's reader is gone (as with `| head`).
"""

import errno
import functools
import inspect
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from typing import Any, NoReturn

import click
import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.models import ArgumentInfo

from fedlingua.common.errors import FedlinguaError
from fedlingua.common.terminal import printable, printable_json
from fedlingua.desk.check_result import CheckResult
from fedlingua.desk.cli.completion import mend_words

FAILED, USAGE, FAULT, INTERRUPTED, UNREAD = 1, 2, 70, 130, 141
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Codes of failed writes that name no file."""
TEXT, JSON = "text", "json"
Answer = Any
"""A command's answer for programs: values that JSON holds, and paths."""
_META = "fedlingua.format"


class AnsweringCommand(TyperCommand):
    """A command with `--format`; its function returns the answer for programs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        words = "Output format; json: one document on standard output."
        choice = click.Choice([TEXT, JSON])
        self.params.append(TyperOption(param_decls=["--format"], type=choice, default=TEXT, show_default=True, help=words))
        declared = inspect.signature(self.callback).parameters if self.callback else {}
        for each in self.params:  # click 8.5 resets the help that typer gives to arguments
            if isinstance(each, TyperArgument) and each.name in declared:
                infos = getattr(declared[each.name].annotation, "__metadata__", ())
                each.help = next((info.help for info in infos if isinstance(info, ArgumentInfo)), each.help)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; for a run's key that was given as an option, explain how to give it."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from fedlingua.settings.table import KEYS, OPTIONS  # imported only after a mistake

            name = error.option_name.lstrip("-")
            key = name if name in OPTIONS else KEYS.get(name.replace("-", "_"))
            if self.name in ("run", "suite") and key:
                raise click.UsageError(
                    f"{error.option_name} is a key, not an option: give it as --set {key}=VALUE", ctx
                ) from error
            raise
        ctx.meta[_META] = ctx.params.pop("format", TEXT)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and, with `--format json`, print its answer."""
        try:
            answer = super().invoke(ctx)
            if ctx.meta.get(_META) == JSON:
                print_json(answer)
            sys.stdout.flush()
        except BrokenPipeError:  # before typer sees it, which would exit with 1
            _unread()
        return None


class AnsweringConsole(Console):
    """The console of every command: prints without markup or control characters, and exits with 141 if the reader is gone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before a line or a table is laid out

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Remove control characters from all that is printed, also from what was no string; rich's own controls stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Exit with 141, where rich's own method exits with 1."""
        _unread()


class Commands(typer.Typer):
    """A typer app whose commands take `--format`. group: also with one command it is a group of commands."""

    def __init__(self, group: bool = False, **options: Any) -> None:
        super().__init__(**{"no_args_is_help": True, "add_completion": False, "pretty_exceptions_enable": False, **options})
        if group:
            self.callback()(lambda: None)  # without it typer takes a group of one command for the command itself

    def command(self, name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # type: ignore[override]
        """Register a command as typer does; it also takes `--format`, and its help is the first paragraph of its docstring."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            text = (inspect.getdoc(function) or "").partition("\n\n")[0]
            super(Commands, self).command(name, cls=AnsweringCommand, help=text, **options)(_with_grouped_options(function))
            return function

        return add


def _with_grouped_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each parameter that is a dataclass by one option for each of its fields, so that commands can share options."""
    signature = inspect.signature(function, eval_str=True)
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in annotations.items() if is_dataclass(kind)}
    fields = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}
    parameters = [
        each.replace(kind=each.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        for each in (fields[name].values() if name in groups else (parameter,))
    ]

    @functools.wraps(function)
    def called(**given: Any) -> Any:
        made = {name: group(**{field: given.pop(field) for field in fields[name]}) for name, group in groups.items()}
        return function(**given, **made)

    called.__dict__["__signature__"] = signature.replace(parameters=parameters)
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def example(*lines: str) -> str:
    """Return the end of a command's help: command lines to start with. Every command has one, and a test tries each."""
    return "\n\n".join(f"Example: {line}" for line in lines)


def console() -> Console:
    """Return the console for a command's messages: standard output, or standard error if standard output is for JSON."""
    return AnsweringConsole(stderr=asks_json())


def say(text: str, **style: Any) -> None:
    """Print a line on `console()`, without wrapping it, however narrow the terminal."""
    console().print(text, soft_wrap=True, **style)


def sayer() -> Callable[[str], None]:
    """Return `say` for other threads, which do not know the output format."""
    return functools.partial(console().print, soft_wrap=True)


def warn(text: str, style: str = "bold red") -> None:
    """Print a line on standard error."""
    AnsweringConsole(stderr=True).print(text, style=style, soft_wrap=True)


@contextmanager
def progress_bar(description: str = "", **options: Any) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error until the end; yield the function that updates it: (description, steps done, all steps)."""
    with Progress(console=AnsweringConsole(stderr=True), transient=True) as progress:
        bar = progress.add_task(description, **options)
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)


def plain_table(
    *headers: str, rows: Iterable[Iterable[str | Text]] = (), title: str = "", left: Collection[str] = (), **options: Any
) -> Table:
    """Return a table without an outer border. Columns after the first are aligned right, except those of text in `left`."""
    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, **options)
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place and header not in left else "left", no_wrap=not place)
    for row in rows:
        table.add_row(*row)
    return table


def show_result(result: CheckResult) -> dict[str, Any]:
    """Print the result of a check, its mark first, and return it for programs."""
    mark, style = ("note", "yellow") if result.remark else ("ok", "green") if result.good else ("wrong", "bold red")
    console().print(Text.assemble((f"{mark:5}", style), f" {result.what}: {result.text}"), soft_wrap=True)
    return {"what": result.what, "good": result.good, "note": result.remark, "told": result.text}


def asks_json() -> bool:
    """Return whether the current command prints JSON."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and ctx.meta.get(_META) == JSON


def print_json(answer: Answer) -> None:
    """Print one JSON document on standard output, with null for NaN and infinity, which JSON lacks."""
    from pydantic_core import to_jsonable_python  # most commands print no JSON

    plain = to_jsonable_python(answer, inf_nan_mode="null")
    print(printable_json(json.dumps(plain, ensure_ascii=False, indent=2, allow_nan=False)), flush=True)


def run_commands(app: typer.Typer, arguments: Sequence[str]) -> NoReturn:
    """Run a command line and end with its exit code; errors are printed without traceback, and as JSON with `--format json`."""
    # Whether errors are JSON must be known before the command line is parsed, since parsing may fail.
    as_json = f"--format={JSON}" in arguments or ("--format", JSON) in itertools.pairwise(arguments)
    mend_words(os.environ)
    try:
        code = app(list(arguments), standalone_mode=not as_json)
    except FedlinguaError as error:
        _end(as_json, FAILED, type(error).__name__, str(error), error.answer)
    except click.ClickException as error:  # only with --format json: otherwise typer shows them
        _end(as_json, error.exit_code, "UsageError", error.format_message())
    except BrokenPipeError:
        _unread()
    except OSError as error:
        if error.filename is not None:
            message = f"{error.filename}: {error.strerror}; check the path, its content and its permissions"
        elif error.errno in OF_THE_DISK:
            message = f"{error.strerror}; make room, or check the disk that is written to, then run the command again"
        else:  # names no file that a user could check
            _fault(as_json, error)
        _end(as_json, FAILED, type(error).__name__, message)
    except Exception as error:
        _fault(as_json, error)
    sys.exit(code if isinstance(code, int) else 0)


def _fault(as_json: bool, error: Exception) -> NoReturn:
    sys.stderr.write(printable(traceback.format_exc()))
    message = f"{type(error).__name__}: this is a fault of fedlingua itself; please report it with the lines above"
    _end(as_json, FAULT, type(error).__name__, message)


def _end(as_json: bool, code: int, kind: str, message: str, answer: Any = None) -> NoReturn:
    with suppress(OSError):  # if nothing can be written, the exit code alone reports it
        AnsweringConsole(stderr=True).print(f"error: {message}", style="bold red", highlight=False, soft_wrap=True)
    try:
        if as_json:
            error = {"kind": kind, "message": message, "exit_code": code}
            print_json({"error": error} if answer is None else {"error": error, "answer": answer})
        sys.stdout.flush()
    except OSError:
        _drop_output()
    sys.exit(code)


def _unread() -> NoReturn:
    """End silently as after SIGPIPE, since the reader is gone."""
    _drop_output()
    sys.exit(UNREAD)


def _drop_output() -> None:
    """Discard buffered output, which cannot be written; otherwise Python would complain at exit."""
    with suppress(OSError, ValueError):
        out = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
