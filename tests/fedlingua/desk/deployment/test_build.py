"""What a bundle holds: what a node runs, and nothing that people sit at."""

import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from fedlingua.common.errors import DeploymentError
from fedlingua.common.files import APP_DIR, bundled_files
from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.deployment.build import build_bundle


@pytest.fixture(scope="module")
def bundle() -> bytes:
    return build_bundle(APP_DIR)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A copy of the checkout's code."""
    copy = tmp_path / "app"
    for name in ("src", "strategies", "clients", "experiments", "tests/hostile", "benchmarks", "deploy"):
        shutil.copytree(APP_DIR / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copyfile(APP_DIR / name, copy / name)
    return copy


def test_the_bundle_is_what_flower_makes_of_the_whole_checkout(app: Path, bundle: bytes, tmp_path: Path) -> None:
    """`flwr build` picks by fab-include what this project picks by itself."""
    (tmp_path / "built").mkdir()
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(app)]
    subprocess.run(
        command, cwd=tmp_path / "built", env={**os.environ, "FLWR_HOME": str(tmp_path)}, check=True, capture_output=True
    )
    (built,) = (tmp_path / "built").glob("*.fab")
    assert built.read_bytes() == bundle


def test_it_holds_the_three_packages_without_the_desk_in_little_more_than_a_megabyte(bundle: bytes) -> None:
    names = zipfile.ZipFile(BytesIO(bundle)).namelist()
    assert {"pyproject.toml", "src/fedlingua/exchange/protocol.py", "clients/client_app.py", "strategies/server_app.py"} <= set(
        names
    )
    assert not [name for name in names if "desk" in name or name.startswith(("experiments", "tests", "src/fedlingua_demo"))]
    assert set(names) - {".info/CONTENT"} == {str(file.relative_to(APP_DIR)) for file in bundled_files(APP_DIR)}
    assert len(bundle) <= 1_060_000  # what sites do after the last round, and models of their own, came to the megabyte


def test_what_no_node_runs_leaves_its_hash_as_it_was(app: Path, bundle: bytes) -> None:
    for file in ("src/fedlingua/desk/cli/app.py", "experiments/demo.toml", "tests/hostile/test_new.py", "README.md"):
        (app / file).parent.mkdir(exist_ok=True)
        with (app / file).open("a") as stream:
            stream.write("\n# changed\n")
    assert bundle_hash(build_bundle(app)) == bundle_hash(bundle)


def test_what_a_node_runs_changes_it(app: Path, bundle: bytes) -> None:
    with (app / "clients/client_app.py").open("a") as stream:
        stream.write("\n# changed\n")
    assert bundle_hash(build_bundle(app)) != bundle_hash(bundle)


def test_a_node_runs_what_was_unpacked_without_a_desk(bundle: bytes, tmp_path: Path) -> None:
    """Both of Flower's doors open from the bundle alone; the demo's weights are the installation's."""
    zipfile.ZipFile(BytesIO(bundle)).extractall(tmp_path)
    doors = (
        "import clients.client_app, strategies.server_app, importlib.util as u, fedlingua, fedlingua_demo\n"
        "from fedlingua.common.files import APP_DIR\n"
        "print(fedlingua.__path__[0]); print(APP_DIR); print(u.find_spec('fedlingua.desk')); print(fedlingua_demo.BACKBONE.is_dir())"
    )
    done = subprocess.run([sys.executable, "-c", doors], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(tmp_path / "src/fedlingua"), str(tmp_path), "None", "True"], done.stderr


def test_a_folder_that_is_no_app_is_told_in_flowers_words(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=f"{tmp_path} cannot be made into a bundle: .+"):
        build_bundle(tmp_path)
