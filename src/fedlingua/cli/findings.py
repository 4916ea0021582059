"""How findings are shown: a line each, its mark first."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from fedlingua.findings import Finding


def show_finding(finding: Finding, console: Console) -> dict[str, Any]:
    """Print a finding; as programs read it."""
    mark = "[yellow]note[/yellow] " if finding.note else "[green]ok[/green]   " if finding.good else "[bold red]wrong[/bold red]"
    console.print(f"{mark} {escape(finding.what)}: ", end="", soft_wrap=True, highlight=False)
    console.print(finding.told, markup=False, soft_wrap=True, highlight=False)
    return {"what": finding.what, "good": finding.good, "note": finding.note, "told": finding.told}
