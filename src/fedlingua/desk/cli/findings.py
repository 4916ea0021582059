"""How findings are shown: a line each, its mark first."""

from typing import Any

from rich.console import Console
from rich.text import Text

from fedlingua.desk.findings import Finding


def show_finding(finding: Finding, console: Console) -> dict[str, Any]:
    """Print a finding; as programs read it."""
    mark, style = ("note", "yellow") if finding.note else ("ok", "green") if finding.good else ("wrong", "bold red")
    line = Text.assemble((f"{mark:5}", style), f" {finding.what}: {finding.told}")
    console.print(line, soft_wrap=True, highlight=False)
    return {"what": finding.what, "good": finding.good, "note": finding.note, "told": finding.told}
