"""Export a model: check first, then write aside and rename, so that the directory is complete or absent."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedlingua.common.errors import RunError
from fedlingua.common.files import json_text, replace_text
from fedlingua.common.folders import replace_folder
from fedlingua.desk.export.adapter import write_adapter
from fedlingua.desk.export.card import model_card
from fedlingua.desk.export.directories import write_ctranslate2, write_peft, write_plain
from fedlingua.desk.export.facts import facts, public_name
from fedlingua.desk.export.forms import FILE, check_place, chosen_form
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import check_tensors


@dataclass(frozen=True)
class Export:
    """An exported model. backbone: directory of its backbone, without which the forms peft and adapter are of no use."""

    directory: Path
    form: str
    backbone: Path
    facts: Mapping[str, Any]


def export_model(
    model: TrainedModel,
    to: Path,
    form: str = "",
    run_dir: Path | None = None,
    force: bool = False,
    quantization: str = "",
    name: str = "",
) -> Export:
    """Write a trained model into the folder `to`, with README.md (its card) and export.json.

    Args:
        form: a key of FORMS; "" takes the tensor set's default.
        run_dir: the run's folder, for the card; None at a site, which has none.
        name: the backbone's name for the card, if its settings hold a path.

    Raises:
        ConfigError: the folder must not be written. RunError: the form cannot hold the model, the backbone is not the model's,
            or writing fails. BackboneError: the backbone cannot be loaded.
    """
    final = check_place(to, force)
    form = chosen_form(form, model.settings)
    assert model.load is not None, "what trains nothing was refused"
    loaded = model.load()
    trainable = model.trainable(device="cpu", precision="fp32", frozen_bits=0)  # so that merging loses no precision
    tensors = check_tensors(loaded, trainable.trained)
    write_tensors(trainable.model, tensors)
    backbone = trainable.backbone.directory
    name = name or public_name(model.settings.backbone)
    use = None
    if not model.direction.is_one_language:  # how to request the target language: by its token, or in the text
        codec = trainable.backbone.codec
        number, text = codec.first_id(model.direction), codec.as_text("...", model.direction)
        token = None if number is None else str(codec.tokenizer.convert_ids_to_tokens(number))
        use = {
            "target_id": number,
            "target_token": token,
            "text": text,
            "is_causal": codec.is_causal,
            "adds_special": not (codec.is_causal and codec.tokenizer.chat_template),  # a template's text already has them
        }
    about = {"form": form, "quantization": quantization or None, **facts(model, backbone, name, run_dir), "use": use}

    def write(aside: Path) -> None:
        more: Mapping[str, Any] = {}
        if form == "adapter":
            more = write_adapter(aside, model.settings, tensors, name)
        elif form == "peft":
            on_hub = name if "/" in name else ""
            write_peft(aside, model, trainable, tensors, on_hub, about["backbone"]["revision"] if on_hub else "")
        elif form == "transformers":
            write_plain(aside, model, trainable)
        else:
            write_ctranslate2(aside, model, trainable, quantization)
        replace_text(aside / "README.md", model_card(about))
        replace_text(aside / FILE, json_text({**about, **more}))

    try:
        replace_folder(final, write)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"--to {to} cannot be written ({error}); nothing was left behind, and earlier content is unchanged"
        ) from error
    return Export(final, form, backbone, about)
