"""Write hashes/*.txt: the versions of constraints.txt with the hashes of all their files, as the package index has them. `make hashes`.

run.txt: what fedlingua needs, and what its installation needs; dev.txt: what tests, lint and docs need besides; torch.txt; cuda.txt: what
torch's default build for Linux needs. Installed with --no-deps, because they are complete. No index and no URL is in them.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "3.11.5"
"""The oldest; a package of `make docs` needs it."""
BUILD = "hatchling\neditables\nsetuptools\n"
"""What builds fedlingua itself and those packages of which the index has the source alone."""
TORCH_ON_CPU = {
    "cp311 x86_64": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "cp311 aarch64": "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
    "cp312 x86_64": "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    "cp312 aarch64": "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
}
"""Of torch 2.13.0+cpu for Linux on PyTorch's own index; for macOS it has the files of the package index."""
ON_A_GPU = re.compile(r"(nvidia|cuda)-|triton$")


def compiled(*extras: str) -> dict[str, str]:
    """Return name -> the lines of its version and its hashes."""
    command = [Path(sys.executable).parent / "uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--no-python-downloads", "--color", "never"]
    command += ["--constraints", "constraints.txt", "pyproject.toml", "-", *(f"--extra={extra}" for extra in extras)]
    done = subprocess.run(command, cwd=ROOT, input=BUILD, stdout=subprocess.PIPE, text=True, check=True)
    return {entry.partition("==")[0]: entry for entry in re.split(r"\n(?=\S)", done.stdout.strip())}


def main() -> None:
    run, everything = compiled(), compiled("dev", "docs")
    torch = run["torch"] + "".join(f" \\\n    --hash=sha256:{digest}" for digest in TORCH_ON_CPU.values())
    cuda = {name for name in run if ON_A_GPU.match(name)}
    files = {
        "torch": [torch],
        "cuda": [run[name] for name in sorted(cuda)],
        "run": [run[name] for name in sorted(run.keys() - cuda - {"torch"})],
        "dev": [everything[name] for name in sorted(everything.keys() - run.keys())],
    }
    for name, entries in files.items():
        (ROOT / "hashes" / f"{name}.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
