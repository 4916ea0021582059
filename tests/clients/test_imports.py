"""What the ClientApp imports: each message of a deployed node is handled by a new process, so what is heavy comes where it is used."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "transformers", "scipy", "sklearn", "datasets", "pandas", "plotly", "peft", "accelerate", "langcodes", "ray")
ROOT = Path(__file__).parents[2]


def test_the_client_app_is_imported_without_what_is_heavy() -> None:
    script = f"import sys, clients.client_app; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
