"""The forms that a model can be exported in, and the checks of form and folder before anything is loaded."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.tables import check_choice
from fedlingua.desk.paths import check_folder_to_write
from fedlingua.settings.config import Settings
from fedlingua.settings.methods import SMALL_SETS


@dataclass(frozen=True)
class Form:
    """An export form. sets: names of the tensor sets that it can hold. tasks: the tasks that it supports."""

    sets: tuple[str, ...]
    tasks: tuple[str, ...] = ("translation", "masked-language")


FILE = "export.json"
"""Written with every form; a folder without it is not an export, and is not replaced."""
_IN_WEIGHTS = ("lora", "full", "controllers")
"""Tensor sets that a whole model's weights can hold."""
FORMS = {
    "adapter": Form(SMALL_SETS),
    "peft": Form(("lora",)),
    "transformers": Form(_IN_WEIGHTS),
    "ctranslate2": Form(_IN_WEIGHTS, ("translation",)),
}
"""`--form` -> the form."""
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
DEFAULTS = {"adapters": "adapter", "lora": "peft", "full": "transformers", "controllers": "transformers"}
"""Tensor set -> its default form."""


def check_form(form: str, quantization: str) -> None:
    """Refuse an unknown form, and a quantization that does not go with it. form: "" takes the tensor set's default."""
    if form:
        check_choice(form, FORMS, "--form")
    if quantization:
        check_choice(quantization, QUANTIZATIONS, "--quantization")
        if form != "ctranslate2":
            raise ConfigError(
                f"--quantization {quantization} is for CTranslate2 models; give --form ctranslate2 as well, or leave it out"
            )
    if form == "ctranslate2" and find_spec("ctranslate2") is None:
        raise ConfigError("--form ctranslate2 needs CTranslate2, an extra; install it with pip install 'fedlingua[ctranslate2]'")


def chosen_form(form: str, settings: Settings) -> str:
    """Return the form that a run's model is exported in; RunError, which says what can be done instead, if none can hold it."""
    if not settings.how.trains:
        raise RunError(
            f"method {settings.method} trains nothing, so there is nothing to export but its backbone {settings.backbone!r} itself"
        )
    tensor_set = settings.trained_set
    form = form or DEFAULTS[tensor_set]
    wanted = FORMS[form]
    if settings.task not in wanted.tasks:
        raise RunError(
            f"--form {form}: task = {settings.task!r} trained an encoder, which translates nothing; choose --form {_others(settings)}"
        )
    if tensor_set not in wanted.sets:
        lora = ", or train with tensor-set = 'lora', whose additions are linear and merge" if tensor_set == "adapters" else ""
        raise RunError(f"--form {form}: {_why_not(form, tensor_set)}; choose --form {_others(settings)}{lora}")
    if form == "peft" and settings.backbone_weights == "random":
        raise RunError(
            "--form peft: the run's backbone has weights drawn at random (backbone-weights = 'random'), which no directory holds; choose "
            "--form transformers, which has them in it"
        )
    return form


def _why_not(form: str, tensor_set: str) -> str:
    if form == "adapter":
        return f"with tensor-set = {tensor_set!r} the whole model trained, and nothing of it was attached to a backbone"
    if form == "peft":
        what = "bottleneck adapters with layer norms" if tensor_set == "adapters" else "all of the model's weights"
        return f"tensor-set = {tensor_set!r} trained {what}, and peft has no form for those"
    return (
        "a bottleneck adapter, h + up(relu(down(h))), cannot be merged into the backbone: its relu stands between two projections, and no "
        "weight matrix of the backbone's does the same"
    )


def _others(settings: Settings) -> str:
    able = (name for name, form in FORMS.items() if settings.trained_set in form.sets and settings.task in form.tasks)
    return " or ".join(able)


def check_place(to: Path, force: bool) -> Path:
    """Return the absolute path of the folder to export to; refuse a file, and a folder that must not be replaced or cannot be written."""
    final = Path(os.path.abspath(to.expanduser()))
    if final.is_symlink() or final.is_file():
        raise ConfigError(f"--to {to}: there is a file or a link of this name; give a new folder")
    if final.is_dir() and any(final.iterdir()):
        if not force:
            raise ConfigError(f"--to {to} already exists; give another folder, or --force to replace an earlier export")
        if not (final / FILE).is_file():
            raise ConfigError(
                f"--to {to} was not exported by fedlingua (it has no {FILE}), so --force does not remove it; give another folder"
            )
    check_folder_to_write(final, "--to")
    return final
