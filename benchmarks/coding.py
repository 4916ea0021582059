"""Time and bytes of coding a change, beside what compresses its float32 and its float16 as they are.

    .venv/bin/python benchmarks/coding.py [--small] [--to results.json] [--repeats N] [--updates BEFORE.safetensors AFTER.safetensors ...]

8 million normal numbers in tensors as mBART-50's adapters have them, on one core; ways take turns in one process, and what counts is the
time that the process had. MB are of float32. Wanted: 300 MB/s to encode and to decode, of 4 bits and of the top tenth at 4 bits.
`--updates` tells each code's bytes and cosine on real updates, one for each two files; without it, on normal numbers, which say what
bytes there are, but nothing of what low rank or a share of the numbers holds.
"""

import os
import time
import zlib
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from kept import keep, parser_of
from paired import turn_about
from safetensors.numpy import load_file

from fedlingua.exchange.coding.coder import Shapes, decode, encode, generator_of
from fedlingua.exchange.joined import Numbers
from fedlingua.settings.codes import parse_code

WANTED_MB_S = 300
CODES = (
    *("lossless", "8bit", "6bit", "4bit", "4bit nearest", "3bit nearest", "2bit", "sign", "4bit rank 8", "4bit top 0.1"),
    *(
        "sign top 0.1",
        "4bit rank 4",
        "3bit rank 4",
        "4bit rank 2",
        "4bit top 0.03",
        "sign top 0.03",
        "4bit rank 1",
        "sign top 0.01",
    ),
)
TIMED = ("lossless", "8bit", "4bit", "sign", "4bit top 0.1", "sign top 0.03", "4bit rank 4")
HELD = ("4bit", "4bit top 0.1")


def adapters(layers: int) -> Shapes:
    """Of so many adapters of width 64 on 1,024, each with its layer norm."""
    return [(64, 1024), (64,), (1024, 64), (1024,), (1024,), (1024,)] * layers


def update(before: Path, after: Path) -> tuple[Numbers, Shapes]:
    """What has changed from one file to the other, tensors end to end."""
    old, new = load_file(before), load_file(after)
    return np.concatenate([np.ravel(new[name] - old[name]) for name in old]), [tensor.shape for tensor in old.values()]


def sizes(change: Numbers, shapes: Shapes) -> dict[str, dict[str, float]]:
    """Code -> its share of float32's bytes, and the cosine between what was to be sent and what was."""
    rows = {}
    for text in CODES:
        payload = encode(change, shapes, parse_code(text), generator_of(2022, 1, "site", "encoder"))
        decoded = decode(payload, shapes, parse_code(text)).astype(np.float64)
        cosine = float(change @ decoded) / max(float(np.linalg.norm(change) * np.linalg.norm(decoded)), 1e-30)
        rows[text] = {"bytes_share": round(len(payload) / change.nbytes, 5), "cosine": round(cosine, 4)}
    return rows


def speeds(change: Numbers, shapes: Shapes, repeats: int) -> dict[str, dict[str, float]]:
    """Way -> MB of float32 a second to encode and to decode, and its share of float32's bytes."""
    half = change.astype(np.float16)
    coded: dict[str, bytes] = {"zlib of float32": zlib.compress(change.data, 1), "zlib of float16": zlib.compress(half.data, 1)}
    ways: dict[str, Callable[[], object]] = {
        "zlib of float32 encode": lambda: zlib.compress(change.data, 1),
        "zlib of float32 decode": lambda: zlib.decompress(coded["zlib of float32"]),
        "zlib of float16 encode": lambda: zlib.compress(change.astype(np.float16).data, 1),
        "zlib of float16 decode": lambda: np.frombuffer(zlib.decompress(coded["zlib of float16"]), np.float16).astype(np.float32),
    }
    for text in TIMED:
        code = parse_code(text)
        coded[text] = encode(change, shapes, code, generator_of(1, 1, "site", "encoder"))
        ways[f"{text} encode"] = partial(lambda code: encode(change, shapes, code, generator_of(1, 1, "site", "encoder")), code)
        ways[f"{text} decode"] = partial(decode, coded[text], shapes, code)
    times = turn_about(ways, repeats, time.process_time)
    return {
        way: {
            **{
                f"{does}_mb_s": round(change.nbytes / 1e6 / float(np.median(times[f"{way} {does}"])))
                for does in ("encode", "decode")
            },
            "bytes_share": round(len(coded[way]) / change.nbytes, 4),
        }
        for way in coded
    }


def main() -> None:
    parser = parser_of(__doc__, 5, "a tenth of the numbers")
    parser.add_argument("--updates", type=Path, nargs="+", default=[], help="files before and after, in turns")
    options = parser.parse_args()
    shapes = adapters(6 if options.small else 60)
    change = np.float32(0.01) * np.random.default_rng(2022).standard_normal(sum(map(prod, shapes)), np.float32)
    result: dict[str, Any] = {"numbers": change.size, "tensors": len(shapes), "speed": speeds(change, shapes, options.repeats)}
    pairs = zip(options.updates[::2], options.updates[1::2], strict=True)
    result["updates"] = {f"{pair[1].parent.name}/{pair[1].stem}": sizes(*update(*pair)) for pair in pairs}
    result["normal"] = sizes(change, shapes)
    keep(result | {"load": round(os.getloadavg()[0], 1)}, options.to, "numpy")
    slow = {text: row for text in HELD if min((row := result["speed"][text])["encode_mb_s"], row["decode_mb_s"]) < WANTED_MB_S}
    if slow:
        raise SystemExit(f"slower than {WANTED_MB_S} MB/s, which is wanted on a machine with nothing else to do: {slow}")


if __name__ == "__main__":
    main()
