"""Make a backbone with three layers a stack of the demo's two, so that a middle third has adapters (Liu et al. 2023, table 5).

    python -m experiments.fed_mnmt.three_layers

It goes into the user's cache, where `backbone = "phrasebook-three-layers"` finds it. The new middle layer is a copy of the first whose
outputs are scaled, so that the model still translates about as well without training.
"""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from fedlingua.common.cache import cache_dir
from fedlingua_demo import BACKBONE

SCALED = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
SCALE = 0.25


def deepened(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with layer 1 of each stack moved to 2, and a scaled copy of layer 0 in its place."""
    deeper = {name.replace(".layers.1.", ".layers.2."): tensor for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if ".layers.0." in name:
            scale = SCALE if any(f".{part}." in name for part in SCALED) else 1.0
            deeper[name.replace(".layers.0.", ".layers.1.")] = tensor * scale
    return deeper


def main(folder: Path) -> None:
    shutil.copytree(BACKBONE, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 3)
    (folder / "config.json").write_text(json.dumps(config) + "\n", encoding="utf-8")
    weights = folder / "model.safetensors"
    save_file(deepened(load_file(weights)), weights, metadata={"format": "pt"})


if __name__ == "__main__":
    main(cache_dir() / "backbones" / "phrasebook-three-layers")
