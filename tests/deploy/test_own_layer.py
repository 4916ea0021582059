"""docs/guides/layer.md's layer across real processes: a SuperLink, three SuperNodes, a server that is killed and a run that is resumed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, block

CODE = ("src", "strategies", "clients", "experiments", "deploy", "pyproject.toml", "pyproject-flwr.toml", "LICENSE")
LAYER = "my_layer:LargestChanges(share=0.05)"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_guides_layer_is_approved_and_ends_deployed_in_the_bytes_of_its_simulation(tmp_path: Path) -> None:
    """deploy/demo.py compares the bytes. It runs in a copy of the checkout, since the layer's file lies beside pyproject.toml."""
    app = tmp_path / "app"
    for name in CODE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, app / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, app)
    (app / "my_layer.py").write_text(block("docs/guides/layer.md", 'python title="my_layer.py"'))
    command = [sys.executable, "deploy/demo.py", "--set", f'layers=["{LAYER}"]']
    environment = os.environ | {"PYTHONPATH": str(app / "src"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=app, env=environment, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "all as it has to be" in done.stdout
    told = " ".join(done.stdout.split())
    assert f"once the bundle's layers = '{LAYER}' have changed them" in told
    sent = [float(size) for size in re.findall(r"round \d+, train.*?64 tensors; ([\d.]+) kB sent", told)]
    assert len(sent) >= 6
    assert max(sent) < 12  # about 43 kB without it
