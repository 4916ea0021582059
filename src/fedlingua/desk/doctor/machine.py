"""Check what a machine has: cores, memory, disk, ports, GPUs."""

import importlib.util
import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from fedlingua.common.cache import cache_dir
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.desk import units
from fedlingua.desk.check_result import Remark
from fedlingua.desk.processes import HOST, check_free, free_port

LEAST_MEMORY, LITTLE_MEMORY = 10**9, 4 * 10**9
"""Free bytes below which not even the demo's server and one client (0.7 GB each, partly shared) run, or only few clients."""
LEAST_DISK, LITTLE_DISK = 10**9, 5 * 10**9
LITTLE_SHARED_MEMORY = 256 * 10**6
DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
"""Files that exist if a GPU's driver is loaded: NVIDIA's, AMD's."""


def check_cores() -> str:
    """Report the cores for clients to work at once, and whether bf16 is native."""
    allowed, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    text = f"{allowed} cores" + (f" of {all_of_them}, as this process may use no others" if allowed < all_of_them else "")
    text += "; native bf16" if computed_in("bf16", "cpu") == "bf16" else "; no native bf16: precision = 'bf16' computes in fp32"
    return text if allowed > 1 else Remark(f"{text}: the clients of a simulation work one after the other")


def check_memory() -> str:
    """Check how much of the main memory is free; raise DeploymentError if it is too little for any run."""
    memory = psutil.virtual_memory()
    text = f"{units.data(memory.available)} of {units.data(memory.total)} are free"
    if memory.available < LEAST_MEMORY:
        raise DeploymentError(f"{text}; a run of the demo needs {units.data(LEAST_MEMORY)} or more: end other programs first")
    return text if memory.available >= LITTLE_MEMORY else Remark(f"{text}; a client process takes about 0.7 GB and its backbone")


def check_bytecode(libraries: Sequence[str] = ("torch", "transformers", "ray", "flwr")) -> str:
    """Check whether the libraries' modules are compiled. If they are not and cannot be written, every process compiles them for itself."""
    specs = filter(None, map(importlib.util.find_spec, libraries))
    new = {spec.name: Path(spec.cached) for spec in specs if spec.cached and not Path(spec.cached).is_file()}
    if not new:
        return "the libraries are compiled"
    if not sys.dont_write_bytecode and all(os.access(file.parent.parent, os.W_OK) for file in new.values()):
        return f"{', '.join(new)} will be compiled by the first process that loads them"
    return Remark(
        f"every process compiles {', '.join(new)} anew, which takes most of its start: unset PYTHONDONTWRITEBYTECODE, or compile once with "
        f"`{sys.executable} -m compileall -q {sysconfig.get_path('purelib')}`"
    )


def check_shared_memory(place: Path = Path("/dev/shm")) -> str:
    """Check the free shared memory, where Ray stores objects that its actors share."""
    if not place.is_dir():
        return Remark(f"there is no {place}: Ray keeps shared objects on disk, which is slower")
    free = shutil.disk_usage(place).free
    text = f"{units.data(free)} are free in {place}"
    return text if free >= LITTLE_SHARED_MEMORY else Remark(f"{text}: Ray uses the disk; in a container give --shm-size=1g")


def check_disk(place: Path, least: int = LEAST_DISK, little: int = LITTLE_DISK) -> str:
    """Check that a folder, or the one in which it will be made, is writable and that its disk has `least` bytes free; remark on fewer than
    `little`."""
    folder = next(each for each in (place, *place.parents) if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise DeploymentError(f"{folder} cannot be written to; choose another folder, or change its permissions")
    free = shutil.disk_usage(folder).free
    text = f"{units.data(free)} are free in {place}"
    if free < least:
        raise DeploymentError(f"{text}; wanted {units.data(least)} or more: free some, or choose another folder")
    return text if free >= little else Remark(f"{text}; checkpoints of a large model take gigabytes")


def places() -> dict[str, Path]:
    """Return the folders that commands write to by default."""
    hub = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return {
        "runs": Path("runs").resolve(),
        "cache": cache_dir(),
        "models of the hub": hub,
        "temporary files": Path(tempfile.gettempdir()),
    }


def check_loopback() -> str:
    """Check that a port can be opened, since a simulation's server takes any free one; raise DeploymentError if none can."""
    try:
        free_port()
    except OSError as error:
        raise DeploymentError(f"no port can be opened on {HOST} ({error}); a simulation needs some") from error
    return f"free ports on {HOST}, as a simulation needs"


def check_port(address: str, what: str) -> str:
    """Check whether a server could listen at an address; a remark if it could not."""
    try:
        check_free(address, what)
    except DeploymentError as error:
        return Remark(f"{error}, in the server.toml of another folder's server")
    return f"{address} is free, {what}"


def torch_build() -> tuple[str, str]:
    """Return torch's version and platform, such as "CUDA 13.0" or "" for CPUs alone, read from its files without importing it.

    Raises:
        ConfigError: it is not installed.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise ConfigError("torch is not installed")
    said: dict[str, Any] = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    names = {"CUDA": said.get("cuda"), "ROCm": said.get("hip")}
    return str(said["__version__"]), next((f"{name} {version}" for name, version in names.items() if version), "")


def torch_devices() -> list[str]:
    """Import torch, and return the GPUs that it sees: name, memory, and whether they have bf16."""
    import torch

    devices = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        with torch.cuda.device(number):
            free, total = torch.cuda.mem_get_info()
            memory = f"{units.data(free)} of {units.data(total)} free"
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            bf16 = "bf16" if has_bf16 else "no bf16, so precision = fp32"
            devices.append(f"{torch.cuda.get_device_name()}, {memory}, {bf16}")
    return devices


def check_gpu() -> str:
    """Report which GPUs device = "cuda" would use. To have none is no error; a torch that cannot list them is."""
    version, platform = torch_build()
    driver = next((each for each in DRIVERS if Path(each).exists()), "")
    text = f"torch {version} is built for {platform or 'CPUs alone'}"
    if not platform and driver:
        return Remark(f"{text}, yet a GPU's driver is loaded ({driver}); `make demo TORCH_INDEX=` takes the build that uses it")
    if not platform:
        return f"none; {text}: device = 'cpu'"
    try:
        seen = torch_devices()
    except (ImportError, RuntimeError) as error:  # a missing CUDA library; a busy or lost device
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise DeploymentError(
            f"{text}, and cannot ask for GPUs ({why}); check the driver (nvidia-smi, rocm-smi), or reinstall torch"
        ) from error
    if not seen:
        return Remark(f"{text} and sees no GPU: device = 'cpu'" + (f"; check the driver ({driver} is there)" if driver else ""))
    return "; ".join([*seen, text])
