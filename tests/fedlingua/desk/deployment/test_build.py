"""What a bundle holds: what a node runs, and nothing that people sit at."""

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, CARRIED, bundled_files
from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.deployment.build import build_bundle, make_private_folder, stage_app
from fedlingua.desk.deployment.server_file import init_server
from fedlingua.desk.deployment.site_setup import init_site


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


def built_by_flower(app: Path, folder: Path) -> bytes:
    folder.mkdir()
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(app)]
    subprocess.run(command, cwd=folder, env={**os.environ, "FLWR_HOME": str(folder)}, check=True, capture_output=True)
    (built,) = folder.glob("*.fab")
    assert bundle_hash(built.read_bytes())[:8] in built.name  # as Flower names it
    return built.read_bytes()


def put_beside(app: Path) -> None:
    """What a newcomer may have in the checkout: folders of a server and of a site after a run, corpora, an environment, results."""
    init_server(app / "server", "north", [], "0.0.0.0:19092", "127.0.0.1:19093", insecure=True)
    init_site(app / "site", "clinic", "de-fr", {"phrasebook": "hospital", "sentences": 60}, "127.0.0.1:19092", None)
    for name in (
        "site/flower/apps/example.fedlingua.0-1-0.abcdef01/src/fedlingua/exchange/protocol.py",
        "site.toml",
        "letters.jsonl",
        "corpora/de-fr.json",
        "corpora/read.py",
        "runs/demo/run.json",
        ".venv/lib/python3.11/site-packages/strategies/x.py",
        "mine.py/x.py",
        "test_mine.py",
        "clients/notes_test.py",
        "strategies/__pycache__/x.cpython-311.pyc",
        "strategies/table.json",
        "a/very/deep/folder/of/a/library/that/lies/in/it/x.py",
    ):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text("tsv = 'letters.tsv'\n")


def test_nothing_that_lies_beside_the_app_changes_its_bundle(app: Path, bundle: bytes, tmp_path: Path) -> None:
    put_beside(app)
    assert build_bundle(app) == bundle
    stage_app(app, tmp_path / "staged")
    staged = {str(file.relative_to(tmp_path / "staged")) for file in (tmp_path / "staged").rglob("*") if file.is_file()}
    assert staged == set(zipfile.ZipFile(BytesIO(bundle)).namelist()) | {"src/fedlingua/desk/left_out.py"}


def test_flower_builds_the_same_of_the_staged_copy_and_of_the_whole_checkout(app: Path, tmp_path: Path) -> None:
    """With a strategy of one's own; the hash that a site approves is computed here, and Flower's is of what it sends."""
    put_beside(app)
    for name in ("a", "mine.py"):  # Flower itself goes no deeper than ten folders, and takes a folder for a file by its name
        shutil.rmtree(app / name)
    (app / "my_strategy.py").write_text("x = 1\n")
    ours = build_bundle(app)
    assert "my_strategy.py" in zipfile.ZipFile(BytesIO(ours)).namelist()
    assert built_by_flower(app, tmp_path / "whole") == ours
    stage_app(app, tmp_path / "staged")
    assert built_by_flower(tmp_path / "staged", tmp_path / "copy") == ours


@pytest.mark.parametrize("place", [".", *CARRIED, "clients/site"])
def test_no_keys_are_put_where_runs_would_carry_them(place: str) -> None:
    before = sorted((APP_DIR / "clients").iterdir())
    with pytest.raises(
        ConfigError, match=r"--to .+ belongs to the app.+give a new one outside src/fedlingua, strategies, clients"
    ):
        make_private_folder(APP_DIR / place, "--to")
    assert sorted((APP_DIR / "clients").iterdir()) == before


def test_git_passes_over_a_new_folder_and_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "new" / "site", "--to")
    assert stat.S_IMODE((tmp_path / "new" / "site").stat().st_mode) == 0o700
    assert (tmp_path / "new" / "site" / ".gitignore").read_text() == "*\n"
    make_private_folder(tmp_path, "--to")
    assert not (tmp_path / ".gitignore").exists()


def test_it_holds_the_three_packages_without_the_desk_in_little_more_than_a_megabyte(bundle: bytes) -> None:
    names = zipfile.ZipFile(BytesIO(bundle)).namelist()
    assert {"pyproject.toml", "src/fedlingua/exchange/protocol.py", "clients/client_app.py", "strategies/server_app.py"} <= set(
        names
    )
    assert not [
        name
        for name in names
        if "desk" in name or name.startswith(("experiments", "tests", "src/fedlingua_demo", "src/fedlingua_lab"))
    ]
    assert set(names) - {".info/CONTENT"} == set(bundled_files(APP_DIR))
    assert len(bundle) <= 1_450_000


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


def test_a_folder_that_is_no_app_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path / 'pyproject.toml'}: there is no such file"):
        build_bundle(tmp_path)
