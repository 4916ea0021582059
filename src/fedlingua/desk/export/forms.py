"""The forms that a model can be taken away in, and which of them express what a run has trained."""

from dataclasses import dataclass
from importlib.util import find_spec

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import nearest
from fedlingua.settings.config import Settings


@dataclass(frozen=True)
class Form:
    """loads: what loads it. sets: names of the tensor sets that it can express. tasks: what such a model may be for."""

    loads: str
    sets: tuple[str, ...]
    tasks: tuple[str, ...] = ("translation", "masked-language")


FORMS = {
    "adapter": Form("fedlingua", ("adapters", "lora")),
    "peft": Form("peft", ("lora",)),
    "transformers": Form("transformers", ("lora", "full", "controllers")),
    "ctranslate2": Form("ctranslate2", ("lora", "full", "controllers"), ("translation",)),
}
"""One line a form: `--form` -> what it can hold."""
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
DEFAULTS = {"adapters": "adapter", "lora": "peft", "full": "transformers", "controllers": "transformers"}
"""Tensor set -> the form that it is taken away in where none is asked for."""


def _check_installed() -> None:
    """Refuse an export that could not be made, before anything loads.

    Raises:
        ConfigError: with what to install.
    """
    if find_spec("ctranslate2") is None:
        raise ConfigError("--form ctranslate2 needs CTranslate2, an extra; install it with pip install 'fedlingua[ctranslate2]'")


def _check_quantization(name: str) -> None:
    """Refuse what CTranslate2 has not.

    Raises:
        ConfigError: with what it has.
    """
    if name and name not in QUANTIZATIONS:
        raise ConfigError(
            f"--quantization {name!r} is not known{nearest(name, QUANTIZATIONS)}; CTranslate2 has {', '.join(QUANTIZATIONS)}"
        )


def check_form(form: str, quantization: str) -> None:
    """Refuse what no run could be exported as. form: "" stands for the tensor set's own.

    Raises:
        ConfigError: an unknown form, a quantization that is unknown or of another form than CTranslate2's, or CTranslate2 is missing.
    """
    if form and form not in FORMS:
        raise ConfigError(f"--form {form!r} is not known{nearest(form, FORMS)}; choose one of {', '.join(FORMS)}")
    _check_quantization(quantization)
    if quantization and form != "ctranslate2":
        raise ConfigError(
            f"--quantization {quantization} is of CTranslate2's models; give --form ctranslate2 as well, or leave it out"
        )
    if form == "ctranslate2":
        _check_installed()


def chosen_form(form: str, settings: Settings) -> str:
    """The form that a run's model is taken away in.

    Raises:
        RunError: the form cannot express what the run has trained; with the reason, and what can be done instead.
    """
    if not settings.how.trains:
        raise RunError(
            f"method {settings.method} trains nothing, so there is nothing to take away but its backbone {settings.backbone!r} itself"
        )
    tensor_set = settings.trained_set
    form = form or DEFAULTS[tensor_set]
    wanted = FORMS[form]
    if settings.task not in wanted.tasks:
        raise RunError(
            f"--form {form}: task = {settings.task!r} trained an encoder, which translates nothing; choose --form {_others(settings)}"
        )
    if tensor_set not in wanted.sets:
        raise RunError(f"--form {form}: {_why_not(form, tensor_set)}; choose --form {_others(settings)}{_or_else(tensor_set)}")
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
        what = "bottleneck adapters with layer norms" if tensor_set == "adapters" else "the whole model"
        return f"with tensor-set = {tensor_set!r} {what} trained, and what peft loads here is low-rank additions alone"
    return (
        "a bottleneck adapter, h + up(relu(down(h))), cannot be merged into the backbone: its relu stands between two projections, and no "
        "weight matrix of the backbone's does the same"
    )


def _others(settings: Settings) -> str:
    return " or ".join(name for name, one in FORMS.items() if settings.trained_set in one.sets and settings.task in one.tasks)


def _or_else(tensor_set: str) -> str:
    return ", or train with tensor-set = 'lora', whose additions are linear and merge" if tensor_set == "adapters" else ""
