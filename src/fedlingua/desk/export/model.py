"""Take a model away: checked first, then written aside and renamed, so that the directory is there whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedlingua.common.errors import RunError
from fedlingua.common.folders import replace_folder
from fedlingua.desk.export.adapter import write_adapter
from fedlingua.desk.export.card import model_card
from fedlingua.desk.export.ctranslate import write_ctranslate2
from fedlingua.desk.export.facts import facts, public_name
from fedlingua.desk.export.forms import chosen_form
from fedlingua.desk.export.low_rank import write_peft
from fedlingua.desk.export.place import FILE, check_place
from fedlingua.desk.export.plain import write_plain
from fedlingua.desk.trained import Trained
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import check_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import json_text, replace_text

CARD = "README.md"


@dataclass(frozen=True)
class Export:
    """Where a model went. backbone: directory of what it fits on; needed by it where `form` is peft or adapter."""

    directory: Path
    form: str
    backbone: Path
    facts: Mapping[str, Any]


def export_model(
    trained: Trained,
    to: Path,
    form: str = "",
    run_dir: Path | None = None,
    force: bool = False,
    quantization: str = "",
    name: str = "",
) -> Export:
    """Write what was trained into the folder `to`, with README.md (its card) and export.json.

    form: of FORMS; "" takes the tensor set's own. run_dir: the run's folder, for the card; None: at a site, which has none. name: of the
    backbone, where its settings hold a path.

    Raises:
        ConfigError: the folder is not to be written. RunError: the form cannot express it, the backbone is not the one that it fits on, or
            the disk is full.
        BackboneError: the backbone cannot be loaded.
    """
    final = check_place(to, force)
    form = chosen_form(form, trained.settings)
    trainable = trained.trainable(device="cpu", precision="fp32")  # a sum of half and fp32 weights rounds nothing away
    assert trained.tensors is not None, "what trains nothing was refused"
    tensors = check_tensors(trained.tensors, trainable.trained)
    write_tensors(trainable.model, tensors)
    backbone = trainable.backbone.directory
    name = name or public_name(trained.settings.backbone)
    told = {"form": form, "quantization": quantization or None, **facts(trained, backbone, name, run_dir)}

    def write(aside: Path) -> None:
        more: Mapping[str, Any] = {}
        if form == "adapter":
            more = write_adapter(aside, trained, tensors, name)
        elif form == "peft":
            on_hub = name if "/" in name else ""
            write_peft(aside, trained, trainable, tensors, on_hub, told["backbone"]["revision"] if on_hub else "")
        elif form == "transformers":
            write_plain(aside, trained, trainable)
        else:
            write_ctranslate2(aside, trained, trainable, quantization)
        told["use"] = _use(trained, trainable)
        replace_text(aside / CARD, model_card(told))
        replace_text(aside / FILE, json_text({**told, **more}))

    try:
        replace_folder(final, write)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"--to {to} cannot be written ({error}); nothing of it is left, and what was there before still is"
        ) from error
    return Export(final, form, backbone, told)


def _use(trained: Trained, trainable: Trainable) -> dict[str, Any] | None:
    """What the model is told to translate: the token of the target language."""
    if trained.direction.is_one_language:
        return None
    codec = trainable.backbone.codec
    number = codec.language_id(trained.direction.target)
    return {"target_id": number, "target_token": str(codec.tokenizer.convert_ids_to_tokens(number))}
