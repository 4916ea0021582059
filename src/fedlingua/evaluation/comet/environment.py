"""The environment that unbabel-comet runs in. It is created on first use with venv and pip, in the user's cache.

unbabel-comet 2.2 requires transformers < 5, protobuf < 5 and numpy < 2, so it cannot share our environment. One call of venv and two of
pip create its own. No tool on the index would save more than it costs: virtualenv would replace the one call; `pipx run` forgets an
environment after 14 days, has no API, and takes one index for all packages, while torch has its own; uv does not read pip's configuration,
in which an institution names its package sources; `build` deletes its environments when it ends; nox and tox create those of a project's
tests. None of them locks out a second process, or says in our words what to do without a network.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from fedlingua.common.cache import cache_dir, making
from fedlingua.common.errors import ConfigError
from fedlingua.common.terminal import last_lines

VERSION = "2.2.7"
REQUIREMENTS = (f"unbabel-comet=={VERSION}", "setuptools<81")
"""setuptools: pytorch-lightning imports pkg_resources, which later versions lack."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
READY = "ready"


def comet_python(say: Callable[[str], None]) -> Path:
    """Return the Python that can import comet. A missing environment is created, which takes a minute or two and 1.2 GB.

    say: Called with a message before anything slow.

    Raises:
        ConfigError: pip cannot create the environment, for example without a network.
    """
    directory = comet_directory()
    python = directory / "bin" / "python"
    if is_ready():
        return python
    with making(directory):
        if is_ready():  # another process created it while this one waited
            return python
        say(f"making an environment for COMET in {directory}: once, about 1.2 GB")
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        _install_torch(python)
        _pip(python, *REQUIREMENTS)
        (directory / READY).touch()
    return python


def comet_directory() -> Path:
    """Return where the environment is, or will be."""
    return cache_dir() / "comet" / f"{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"


def is_ready() -> bool:
    """Return whether the environment is complete."""
    return (comet_directory() / READY).is_file()


def _install_torch(python: Path) -> None:
    """Install our version of torch. If ours has no GPU support, install the CPU build, which lacks several GB of CUDA."""
    import torch  # needed only if an environment is created

    wanted = f"torch=={torch.__version__.partition('+')[0]}"
    if torch.version.cuda is None:
        # If this index cannot be reached, that costs a few seconds, and pip's own sources are used below.
        given = ["--retries", "0", "--timeout", "5", "--index-url", TORCH_CPU_INDEX, wanted]
        if subprocess.run([*_pip_install(python), *given], capture_output=True, check=False).returncode == 0:
            return
    _pip(python, wanted)


def _pip(python: Path, *requirements: str) -> None:
    done = subprocess.run([*_pip_install(python), *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"COMET needs an environment of its own, but pip could not create it: {last_lines(done.stderr, 3)}; go where the package "
            f"index can be reached, or leave comet out of the metrics"
        )


def _pip_install(python: Path) -> list[str]:
    return [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
