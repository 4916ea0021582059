"""Finished runs of two sites on the tiny backbones, one a kind of what trains; made once, for whoever only reads them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from fedlingua.settings.experiment import default_run_config
from tests.federations import TWO_SITES, TWO_TEXTS
from tests.in_process import run
from tests.mbart import build_mbart50

KINDS: dict[str, dict[str, Any]] = {
    "lora": {"method": "adapter-families", "tensor-set": "lora", "lora.targets": "q_proj,fc1"},
    "lora-third": {
        "method": "adapter-fed",
        "tensor-set": "lora",
        "adapter.layers": "output-end",
        "lora.targets": "encoder_attn.q_proj,v_proj",
    },
    "adapters": {"method": "adapter-families", "adapter.dim": 4},
    "full": {"method": "model-fed", "learning-rate": 1e-3},
    "controllers": {"method": "model-fed", "tensor-set": "controllers", "controllers": 2, "learning-rate": 1e-3},
    "base": {"method": "base"},
}
MBART: dict[str, dict[str, Any]] = {"mbart-lora": {"method": "adapter-fed", "tensor-set": "lora", "beam": 1}}
ENCODERS: dict[str, dict[str, Any]] = {
    "encoder-full": {"method": "server-adam"},
    "encoder-lora": {"method": "adapter-fed", "tensor-set": "lora", "lora.targets": "dense,query"},
    "encoder-adapters": {"method": "adapter-fed", "adapter.dim": 4},
}
RunOf = Callable[[str], Path]


@pytest.fixture(scope="session")
def loud_backbone(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny backbone with weights so large that another source is another translation."""
    directory = tmp_path_factory.mktemp("backbones") / "loud"
    shutil.copytree(tiny_backbone, directory)
    (directory / "notes.json").write_text('"What else lies there is nobody\'s business."')
    tensors = load_file(directory / "model.safetensors")
    save_file(
        {name: tensor * (8 if tensor.ndim > 1 else 1) for name, tensor in tensors.items()},
        directory / "model.safetensors",
        {"format": "pt"},
    )
    return directory


@pytest.fixture(scope="session")
def mbart50(phrases: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny mBART-50."""
    return build_mbart50(tmp_path_factory.mktemp("backbones") / "mbart", [line for lines in phrases.values() for line in lines])


@pytest.fixture(scope="session")
def run_of(loud_backbone: Path, mbart50: Path, tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Kind -> the folder of its run: two rounds, after which a translation is another one than before."""
    place = tmp_path_factory.mktemp("runs")
    (place / "two.toml").write_text(TWO_SITES)
    (place / "texts.toml").write_text(TWO_TEXTS)
    short = {"batch-size": 8, "beam": 2, "rounds": 2, "max-tokens": 32, "max-decode-tokens": 16, "learning-rate": 0.01}

    def folder(kind: str) -> Path:
        if not (place / kind).is_dir():
            encoder = kind in ENCODERS
            backbone = tiny_encoder if encoder else mbart50 if kind in MBART else loud_backbone
            on = {"backbone": str(backbone), "task": "masked-language" if encoder else "translation"}
            federation = {"federation": str(place / ("texts.toml" if encoder else "two.toml"))}
            run(
                {
                    **default_run_config(),
                    "keep.choose": False,
                    "send.code": "none",
                    "cluster.least": 1,
                    **short,
                    **on,
                    **federation,
                    **(KINDS | MBART | ENCODERS)[kind],
                },
                place / kind,
            )
        return place / kind

    return folder
