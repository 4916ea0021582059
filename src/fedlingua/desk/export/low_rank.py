"""Low-rank additions as a directory of peft's, which `PeftModel.from_pretrained` puts on the plain backbone."""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from fedlingua.backbones.lora import lora_modules, peft_name, peft_targets
from fedlingua.desk.export.plain import write_tokenizer
from fedlingua.desk.trained import Trained
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import json_text, replace_text

TASKS = {"translation": "SEQ_2_SEQ_LM"}
"""peft's name of a task; it has none for masked-language modelling, and needs none."""


def write_peft(directory: Path, trained: Trained, trainable: Trainable, tensors: Tensors, base: str, revision: str) -> None:
    """adapter_config.json, adapter_model.safetensors, and the backbone's tokenizer with the direction in it.

    tensors: all that trained. base, revision: of the backbone, as the config is to say them; "" where none is published.
    """
    from peft import LoraConfig

    settings = trained.settings
    ends = [end.strip() for end in settings.lora_targets.split(",")]
    config: Any = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,  # type: ignore[arg-type]  # peft says int and divides by it all the same
        target_modules=peft_targets(trainable.model, lora_modules(tensors), ends),
        task_type=TASKS.get(settings.task),
        base_model_name_or_path=base or None,
        revision=revision or None,
        inference_mode=True,
    )
    config.save_pretrained(directory)
    file = directory / "adapter_config.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(told["target_modules"], list):  # peft keeps a set, and writes it in any order
        told["target_modules"] = sorted(told["target_modules"])
    replace_text(file, json_text(told))
    save_file(
        {peft_name(name): array for name, array in tensors.items()}, directory / "adapter_model.safetensors", {"format": "pt"}
    )
    write_tokenizer(directory, trainable.backbone, trained.direction)
