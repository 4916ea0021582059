"""A translation model for CTranslate2, converted from its plain directory; CTranslate2 is an extra (`ctranslate2`)."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from fedlingua.common.errors import BackboneError
from fedlingua.desk.export.plain import tokenizer_files, write_plain
from fedlingua.desk.trained import Trained
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import json_text, replace_text

HINTS = {"mbart": {"normalize_before": True, "normalize_embedding": True, "tokenizer_class": "MBart50Tokenizer"}}
"""Model type -> what the converter asks of config.json, and transformers 5 does not write: where the layer norms stand, and that a target
begins with </s> and its language (mBART-50), not with the language alone (mBART-25)."""


def write_ctranslate2(directory: Path, trained: Trained, trainable: Trainable, quantization: str) -> None:
    """Write model.bin, CTranslate2's config.json and vocabulary, and the tokenizer's files. quantization: "" keeps the stored numbers.

    Raises:
        BackboneError: CTranslate2 cannot convert such a model.
    """
    from ctranslate2.converters import TransformersConverter

    kind = trainable.model.config.model_type
    with TemporaryDirectory(dir=directory) as aside:
        plain, converted = Path(aside, "plain"), Path(aside, "converted")
        plain.mkdir()
        write_plain(plain, trained, trainable)
        config = json.loads((plain / "config.json").read_text(encoding="utf-8"))
        replace_text(plain / "config.json", json_text(config | HINTS.get(kind, {})))
        try:
            TransformersConverter(str(plain)).convert(str(converted), quantization=quantization or None)
        except (ValueError, RuntimeError) as error:
            told = f"backbone = {trained.settings.backbone!r} cannot be converted: CTranslate2 says {str(error).strip()!r}"
            raise BackboneError(f"{told}; export with --form transformers") from error
        _name_the_start(converted / "config.json", str(trainable.backbone.codec.tokenizer.convert_ids_to_tokens(0)))
        tokenizer = [plain / name for name in tokenizer_files(trainable.backbone.codec)]
        for file in [*converted.iterdir(), *tokenizer]:
            if file.is_file():
                shutil.copyfile(file, directory / file.name)


def _name_the_start(file: Path, first: str) -> None:
    """CTranslate2 wants the name of a token to begin with, which mBART-50's tokenizer in transformers 5 does not have: `first`, <s>.

    It begins no target with it: mBART-50's begin with </s>.
    """
    told = json.loads(file.read_text(encoding="utf-8"))
    if told.get("bos_token", "") is None:
        replace_text(file, json_text(told | {"bos_token": first}))
