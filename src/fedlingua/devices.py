"""Whether a machine has a GPU at all, told without loading torch."""

import ctypes
import sys
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
