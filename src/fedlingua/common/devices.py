"""Check for a GPU driver, for what quantizes, and for the precision that the CPU computes in, without loading torch."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fedlingua.common.errors import BackboneError, ConfigError


def check_cuda(device: str) -> None:
    """Raise BackboneError for `cuda` if torch finds no GPU, which loads torch."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("device = 'cuda', but torch sees no GPU here; give device = 'cpu', or install torch's CUDA build")


def check_bits(bits: int) -> None:
    """Raise ConfigError for quantized weights (`frozen-bits`; 0: none) without bitsandbytes."""
    if bits and find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"frozen-bits = {bits} needs bitsandbytes, an extra; install it with pip install 'fedlingua[bitsandbytes]', or give "
            "frozen-bits = 0"
        )


NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""CPU flags of native bf16: two of x86, and ARM's."""


@cache
def cpu_flags() -> frozenset[str]:
    """Return this CPU's flags on Linux; none on other systems."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return frozenset(next((line.split() for line in lines if line.startswith(("flags", "Features"))), ()))


def computed_in(precision: str, device: str, say: Callable[[str], None] = lambda note: None) -> str:
    """Return the precision that `device` computes in. A CPU replaces tf32, and bf16 that is not native, by fp32; `say` gets a note."""
    if device != "cpu" or precision == "fp32" or (precision == "bf16" and NATIVE_BF16 & cpu_flags()):
        return precision
    say(f"precision = {precision!r}: this CPU has no {'native bf16' if precision == 'bf16' else 'TF32'} and computes in fp32")
    return "fp32"
