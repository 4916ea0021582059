"""How transformers' Trainer is asked to train, so that nothing but training is timed."""

from pathlib import Path
from typing import Any


def plain_arguments(folder: Path, batch_size: int, learning_rate: float, weight_decay: float) -> dict[str, Any]:
    """Of its TrainingArguments: an epoch of AdamW at a constant rate on the CPU, without clipping, logging, evaluating or saving."""
    return {
        "output_dir": str(folder),
        "num_train_epochs": 1,
        "per_device_train_batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "optim": "adamw_torch_fused",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
