"""The environment that unbabel-comet runs in: made on first use with venv and pip, and kept in the user's cache.

unbabel-comet 2.2 wants transformers < 5, protobuf < 5 and numpy < 2, so it can stand in no environment of ours. What makes one is a call
of venv and two of pip. No tool on the index takes more off it than it brings: virtualenv would replace the one call; `pipx run` forgets
an environment after 14 days, offers no API, and takes one index for all, where torch comes from its own; uv does not read pip's
configuration, by which an institution says where packages come from; what `build` makes is gone at its end; nox and tox make those of a
project's tests. None of them holds a lock against a second process, or says in our words what to do without a network.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from fedlingua.common.cache import cache_dir, making
from fedlingua.common.errors import ConfigError
from fedlingua.common.processes import last_lines

VERSION = "2.2.7"
REQUIREMENTS = (f"unbabel-comet=={VERSION}", "setuptools<81")
"""setuptools: pytorch-lightning imports pkg_resources, which later ones have not."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
READY = "ready"


def comet_python(say: Callable[[str], None]) -> Path:
    """The Python that can import comet; its environment is made when it is not there, which takes a minute or two and 1.2 GB.

    say: told before anything that takes long.

    Raises:
        ConfigError: pip cannot make it, as without a network.
    """
    directory = comet_directory()
    python = directory / "bin" / "python"
    if is_ready():
        return python
    with making(directory):
        if is_ready():  # made by another process while this one waited
            return python
        say(f"making an environment for COMET in {directory}: once, about 1.2 GB")
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        _install_torch(python)
        _pip(python, *REQUIREMENTS)
        (directory / READY).touch()
    return python


def comet_directory() -> Path:
    """Where the environment is, or will be."""
    return cache_dir() / "comet" / f"{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"


def is_ready() -> bool:
    """Whether it is made."""
    return (comet_directory() / READY).is_file()


def _install_torch(python: Path) -> None:
    """The version that is ours, and where ours knows no GPU, the build without: the other has several GB of CUDA."""
    import torch  # where no environment is to be made, nothing here needs it

    wanted = f"torch=={torch.__version__.partition('+')[0]}"
    if torch.version.cuda is None:
        # An index that cannot be reached costs a few seconds, and what pip finds elsewhere serves.
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
