"""Memory of a simulation at full model size: 8 sites on 2 Ray actors, a randomly initialised mBART-50, one local step each.

    .venv/bin/python benchmarks/mbart_memory.py [--to results.json]

Needs about 5 GB of disk and some minutes on two cores. Counts the proportional set size of all processes (so pages that are shared
count once) plus what lies in /dev/shm, sampled every half second; prints the peak beside the wanted 10 GiB.
"""

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil
import torch
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

from fedlingua.cli.engine import Engine
from fedlingua.config import APP_DIR, read_experiment
from fedlingua.corpora import phrasebook

GIB = 2**30
WANTED_GIB = 10.0
DIRECTIONS = ("de-fr", "nl-pl", "sv-sl", "fr-cs", "es-sv", "it-de", "pl-es", "cs-nl")


def make_backbone(directory: Path) -> None:
    """An mBART-50 of the published shape with random weights and a small vocabulary of its own in the tokenizer."""
    text = phrasebook.register_corpus("hospital", 200, 1)
    words = sorted({word for lines in text.values() for line in lines for word in line.split()})
    vocab = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((f"▁{word}", -5.0) for word in words),
        ("<mask>", 0.0),
    ]
    MBart50Tokenizer(vocab=vocab, src_lang=FAIRSEQ_LANGUAGE_CODES[0]).save_pretrained(directory)
    config = MBartConfig(
        vocab_size=250054,
        d_model=1024,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=1024,
        decoder_start_token_id=2,
    )
    torch.manual_seed(0)
    MBartForConditionalGeneration(config).save_pretrained(directory)


def write_federation(file: Path) -> None:
    sites = "".join(
        f'[[site]]\nname = "{register}"\ndirection = "{direction}"\nphrasebook = "{register}"\nsentences = 24\n'
        for register, direction in zip(phrasebook.REGISTERS, DIRECTIONS, strict=False)
    )
    file.write_text(f"[split]\nmax-train = 8\nmax-dev = 2\nmax-test = 2\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n{sites}")


def used_bytes(home: Path) -> tuple[int, int]:
    """(PSS of the processes whose FLWR_HOME is this engine's, bytes in /dev/shm)."""
    pss = 0
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLWR_HOME") == str(home):
                pss += process.memory_full_info().pss
        except (psutil.Error, OSError):
            continue
    return pss, psutil.disk_usage("/dev/shm").used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="also write the figures as JSON")
    to = parser.parse_args().to
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-benchmark-"))
    try:
        # In a process of its own, so that the memory of making it is gone before anything is measured.
        maker = multiprocessing.get_context("spawn").Process(target=make_backbone, args=(folder / "mbart",))
        maker.start()
        maker.join()
        write_federation(folder / "federation.toml")
        result = measure(folder)
        print(json.dumps(result, indent=2))
        if to:
            to.write_text(json.dumps(result, indent=2) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path) -> dict[str, float | int | str]:
    settings = read_experiment(
        APP_DIR / "experiments" / "demo.toml",
        {
            "federation": str(folder / "federation.toml"),
            "backbone": str(folder / "mbart"),
            "run-dir": str(folder / "run"),
            "rounds": 1,
            "batch-size": 8,
            "accumulation": 1,
            "adapter-dim": 64,
            "beam": 1,
            "max-decode-tokens": 4,
        },
    )
    before = psutil.disk_usage("/dev/shm").used
    peak, peak_pss, done = 0, 0, threading.Event()

    def sample() -> None:
        nonlocal peak, peak_pss
        while not done.wait(0.5):
            pss, shm = used_bytes(folder / "home")
            if pss + shm - before > peak:
                peak, peak_pss = pss + shm - before, pss

    watcher = threading.Thread(target=sample)
    started = time.monotonic()
    with Engine(APP_DIR, folder / "home") as engine:
        run_id = engine.submit(settings.flat(), num_nodes=8)
        watcher.start()
        try:
            while not (status := engine.status(run_id)).finished:
                time.sleep(5)
        finally:
            done.set()
            watcher.join()
    if status.outcome != "completed":
        raise SystemExit(f"the run failed: {json.loads((folder / 'run' / 'run.json').read_text())['reason']}")
    scores = json.loads((folder / "run" / "scores.json").read_text())
    return {
        "peak_gib": round(peak / GIB, 2),
        "peak_pss_gib": round(peak_pss / GIB, 2),
        "wanted_gib": WANTED_GIB,
        "uplink_bytes": scores["uplink_bytes_per_round"],
        "uplink_over_payload": round(scores["uplink_bytes_per_round"] / (4 * scores["exchanged_parameters"]), 5),
        "exchanged_parameters": scores["exchanged_parameters"],
        "seconds": round(time.monotonic() - started, 1),
    }


if __name__ == "__main__":
    main()
