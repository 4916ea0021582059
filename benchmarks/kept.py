"""What a benchmark leaves behind: its figures on the screen, and as JSON where they are asked for."""

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any


def keep(result: Mapping[str, Any], to: Path | None, *libraries: str) -> None:
    """Show the figures with the machine's cores and the versions of `libraries`, and write them to `to`."""
    machine = {"cores": os.cpu_count(), "versions": {name: version(name) for name in libraries}}
    text = json.dumps({**result, **machine}, indent=2)
    print(text)
    if to:
        to.write_text(text + "\n", encoding="utf-8")
