"""The tasks that a run can train a model for."""

from typing import Literal

TaskName = Literal["translation", "masked-language"]
TASKS: tuple[TaskName, ...] = ("translation", "masked-language")
