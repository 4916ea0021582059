"""A model as a plain directory of transformers: what was trained is part of the weights, the tokenizer's files lie beside them.

Such a directory needs no code of this project: the languages' tokens are in the tokenizer and in generation_config.json.
"""

import json
import shutil
from pathlib import Path

from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.controllers import merge_controllers
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.lora import merge_lora
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction
from fedlingua.desk.trained import Trained
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import json_text, replace_text

OF_ANY_TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
PROBE = "1, 2 (a) b: c."
_TOKENIZER = "tokenizer_config.json"


def write_plain(directory: Path, trained: Trained, trainable: Trainable) -> None:
    """Write model, tokenizer and generation config. trainable: holds the trained tensors; of low-rank additions nothing is left of it.

    Raises:
        BackboneError: the tokenizer's files do not give the ids that the model was trained on.
    """
    model = _merged(trained.settings.trained_set, trainable)
    if trained.settings.task == "translation":
        model.generation_config = _generation(model, trained, trainable.backbone.codec)
    model.save_pretrained(directory)
    write_tokenizer(directory, trainable.backbone, trained.direction)


def write_tokenizer(directory: Path, backbone: Backbone, direction: Direction) -> None:
    """The backbone's tokenizer, byte for byte but for the direction, which it takes from now on where nothing else is said.

    Raises:
        BackboneError: loaded again by transformers alone, it does not give the same ids.
    """
    for name in tokenizer_files(backbone.codec):
        if (backbone.directory / name).is_file():
            shutil.copyfile(backbone.directory / name, directory / name)
    code, file = backbone.codec.language_code, directory / _TOKENIZER
    if not direction.is_one_language:
        told = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        told |= {"src_lang": code(direction.source), "tgt_lang": code(direction.target)}
        told.setdefault("tokenizer_class", type(backbone.codec.tokenizer).__name__)
        replace_text(file, json_text(told))
    if _ids(directory, direction) != _ids_in_training(backbone.codec, direction):
        raise BackboneError(
            f"backbone = {backbone.name!r}: its tokenizer, written out and loaded by transformers alone, gives other ids than the model "
            "was trained on; export with --form adapter, which needs no tokenizer"
        )


def tokenizer_files(codec: Codec) -> list[str]:
    """Names of the files that a tokenizer of this kind may have; whatever else lies beside a backbone stays there."""
    return sorted(OF_ANY_TOKENIZER | set(codec.tokenizer.vocab_files_names.values()))


def _ids(directory: Path, direction: Direction) -> object:
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    except (OSError, ValueError) as error:
        return error
    return tokenizer([PROBE], add_special_tokens=not direction.is_one_language)["input_ids"]


def _ids_in_training(codec: Codec, direction: Direction) -> list[list[int]]:
    return codec.pieces([PROBE]) if direction.is_one_language else codec.encode([PROBE], direction.source, 512)


def _merged(tensor_set: str, trainable: Trainable) -> PreTrainedModel:
    if tensor_set == "lora":
        merge_lora(trainable.model)
    return merge_controllers(trainable.model) if tensor_set == "controllers" else trainable.model


def _generation(model: PreTrainedModel, trained: Trained, codec: Codec) -> GenerationConfig:
    """As the run decodes, with the target's token first."""
    settings, known = trained.settings, model.generation_config
    assert known is not None
    told = {
        **known.to_diff_dict(),
        "forced_bos_token_id": codec.language_id(trained.direction.target),
        "num_beams": settings.beam,
        "early_stopping": settings.beam > 1,
        "do_sample": False,
        "max_length": None,
        "max_new_tokens": settings.max_decode_tokens,
    }
    return GenerationConfig.from_dict({key: value for key, value in told.items() if not key.startswith("_")})
