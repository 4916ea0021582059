"""`pip install .`: the wheel alone, without a checkout, from an empty folder, in an environment that has only the libraries of this one."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from fedlingua.common.files import APP_DIR
from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.runs.folder import RunFolder
from tests.federations import TWO_SITES

PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-index"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, inside another project's repository."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    venv.create(place / "env", symlinks=True)
    python, here = place / "env" / "bin" / "python", Path(sys.executable).parent
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place / "env")}))
    # A path in a .pth file is searched for libraries, but for no .pth file of its own: the editable checkout stays out.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", place, APP_DIR], check=True)
    (wheel,) = place.glob("*.whl")
    subprocess.run([*PIP, "--python", python, "install", *OFFLINE, "--ignore-installed", wheel], check=True)
    for script in [*here.glob("flwr*"), *here.glob("flower-*")]:
        (python.parent / script.name).write_text(re.sub("^#!.*", f"#!{python}", script.read_text()))
        (python.parent / script.name).chmod(0o755)
    return python.parent


def fedlingua(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [installed / "fedlingua", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_it_makes_the_bundle_that_its_checkout_makes(installed: Path, tmp_path: Path) -> None:
    done = fedlingua(installed, tmp_path, "bundle")
    assert (done.returncode, done.stdout.strip()) == (0, bundle_hash(build_bundle(APP_DIR))), done.stderr


def test_its_doctor_knows_the_profiles_and_the_versions_that_were_tried(installed: Path, tmp_path: Path) -> None:
    told = fedlingua(installed, tmp_path, "doctor").stdout
    assert "profiles: simulation, simulation-gpu, deployment" in told
    assert "ok    versions" in told or "(tested: " in told
    assert all(Path(constraints).is_file() for constraints in re.findall(r"pip install -c (\S+)", told))


def test_it_leaves_no_name_in_site_packages_that_is_not_its_own(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python*/site-packages")
    assert [path.name for path in packages.iterdir() if not path.name.startswith("fedlingua")] == ["libraries.pth"]


def test_the_demo_is_known_by_its_name_in_whatever_folder(installed: Path, tmp_path: Path) -> None:
    done = fedlingua(installed, tmp_path, "run", "demo", "--profile", "nowhere")
    assert "choose one of simulation" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(900)
def test_it_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    """Two small sites in the place of the demo's nine."""
    (tmp_path / "two.toml").write_text(TWO_SITES)
    small = {
        "federation": tmp_path / "two.toml",
        "rounds": 1,
        "evaluate-every": 1,
        "keep.choose": "false",
        "max-decode-tokens": 6,
    }
    given = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    done = fedlingua(installed, tmp_path, "run", "demo", "--nodes", "1", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunFolder(tmp_path / "runs" / "demo-adapter-families-2022").read("run.json")
    assert run is not None
    assert (run["status"], run["git_revision"]) == ("completed", None)
