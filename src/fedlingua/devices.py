"""Whether a machine has a GPU at all, and what its CPU computes in, without loading torch."""

import ctypes
import sys
from functools import cache
from pathlib import Path

from fedlingua.errors import ConfigError


def check_device(device: str) -> None:
    """Refuse `cuda` where no driver is; whether torch can use the driver that is there is told once a model loads.

    Raises:
        ConfigError: what to give instead.
    """
    if device == "cuda" and sys.platform == "linux" and not _driver():
        raise ConfigError(
            "device = 'cuda', and this machine has no GPU's driver (libcuda.so.1, /dev/kfd); give device = 'cpu', or install the driver"
        )


def _driver() -> bool:
    """NVIDIA's, or AMD's."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Any of these flags means bf16 arithmetic: Intel's and AMD's AVX-512 and AMX, ARM's."""


@cache
def cpu_flags() -> frozenset[str]:
    """What the CPU says it has, as Linux lists it; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.startswith(("flags", "Features"))), []))


def computed_in(precision: str, device: str) -> str:
    """The precision that a run which asks for `precision` has on `device`: on a CPU without native bf16, where bf16 is several times
    slower than fp32, always fp32.
    """
    return precision if device != "cpu" or NATIVE_BF16 & cpu_flags() else "fp32"


def precision_note(precision: str, device: str) -> str:
    """What a user should know of it; "" where the run has what it asks for."""
    if computed_in(precision, device) == precision:
        return ""
    return f"precision = {precision!r}, and this CPU has no native bf16 ({', '.join(sorted(NATIVE_BF16))}): it computes in fp32"
