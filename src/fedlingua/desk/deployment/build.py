"""The bundle of a run: the code that a node runs, and nothing else of a checkout."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from fedlingua.common.errors import DeploymentError
from fedlingua.common.files import bundled_files, read_toml
from fedlingua.common.processes import flower_environment, program


def build_bundle(app_dir: Path) -> bytes:
    """The app's bundle, as `flwr run` sends it: the same bytes from the same code.

    Flower looks at every file below a folder, environments included, so it is given a copy of what goes in.

    Raises:
        DeploymentError: Flower refuses to build it, with its words.
    """
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "app"
        staged.mkdir()
        if not (app_dir / "pyproject.toml").is_file():
            raise DeploymentError(
                f"{app_dir} cannot be made into a bundle: there is no pyproject.toml; give the folder of a Flower app"
            )
        for file in bundled_files(app_dir):
            copy = staged / file.relative_to(app_dir)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        for pattern in read_toml(staged / "pyproject.toml")["tool"]["flwr"]["app"]["fab-exclude"]:
            left_out = staged / pattern.strip("/*") / "left_out.py"  # Flower refuses a pattern that nothing matches
            left_out.parent.mkdir(parents=True, exist_ok=True)
            left_out.touch()
        command = [program("flwr"), "build", "--app", str(staged)]
        environment = flower_environment(Path(folder))
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
        built = list(Path(folder).glob("*.fab"))
        if done.returncode or len(built) != 1:
            raise DeploymentError(f"{app_dir} cannot be made into a bundle: {(done.stdout + done.stderr).strip()}")
        return built[0].read_bytes()
