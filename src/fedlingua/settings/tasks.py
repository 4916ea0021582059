"""What a run trains a model for."""

from typing import Literal

TaskName = Literal["translation", "masked-language"]
TASKS: tuple[TaskName, ...] = ("translation", "masked-language")
