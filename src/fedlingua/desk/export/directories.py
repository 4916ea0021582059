"""Write a model as a directory that transformers, peft or CTranslate2 (the extra `ctranslate2`) loads without this project.

The languages' tokens are in the tokenizer's files and in generation_config.json.
"""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import AutoTokenizer, GenerationConfig

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.load import Backbone
from fedlingua.common.errors import BackboneError
from fedlingua.common.files import json_text, replace_text
from fedlingua.common.languages import Direction
from fedlingua.desk.export.merging import lora_modules, merge_controllers, merge_peft, peft_name, peft_targets
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.exchange.tensors import Tensors, save_tensors
from fedlingua.exchange.trainable import Trainable

OF_ANY_TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
PROBE = "1, 2 (a) b: c."
TASKS = {"translation": "SEQ_2_SEQ_LM", "causal": "CAUSAL_LM"}
"""Task -> peft's name for it; peft neither has nor needs a name for masked-language modelling."""
HINTS = {"mbart": {"normalize_before": True, "normalize_embedding": True, "tokenizer_class": "MBart50Tokenizer"}}
"""Model type -> keys of config.json that the converter needs and transformers 5 does not write: where the layer norms are, and
that a target begins with </s> and its language (mBART-50), not with the language alone (mBART-25)."""


def write_plain(directory: Path, trained: TrainedModel, trainable: Trainable) -> None:
    """Write model, tokenizer and generation config. trainable: holds the trained tensors; low-rank additions are merged in it.

    Raises:
        BackboneError: the tokenizer's files do not give the ids that the model was trained on.
    """
    model = trainable.model
    merge_peft(model)
    if trained.settings.trained_set == "controllers":
        model = merge_controllers(model)
    if trained.settings.task == "translation":
        published = model.generation_config
        assert published is not None
        options = {  # as the run decodes, with the target's token first
            **published.to_diff_dict(),
            "forced_bos_token_id": trainable.backbone.codec.first_id(trained.direction),
            "num_beams": trained.settings.beam,
            "early_stopping": trained.settings.beam > 1,
            "do_sample": False,
            "repetition_penalty": 1.0,
            "length_penalty": 1.0,
            "no_repeat_ngram_size": trained.settings.no_repeat_ngram or None,
            "max_length": None,
            "max_new_tokens": trained.settings.max_decode_tokens,
        }
        public = {key: value for key, value in options.items() if not key.startswith("_")}
        model.generation_config = GenerationConfig.from_dict(public)
    model.save_pretrained(directory)
    write_tokenizer(directory, trainable.backbone, trained.direction)


def write_peft(directory: Path, trained: TrainedModel, trainable: Trainable, tensors: Tensors, base: str, revision: str) -> None:
    """Write a LoRA: adapter_config.json, adapter_model.safetensors, and the backbone's tokenizer with the direction in it.

    tensors: all that were trained. base, revision: the backbone's hub id and revision for the config; "" if it has none.
    """
    from peft import LoraConfig

    settings = trained.settings
    ends = [end.strip() for end in settings.lora_targets.split(",")]
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,  # type: ignore[arg-type]  # peft declares int, but only divides by it
        target_modules=peft_targets(trainable.model, lora_modules(tensors), ends),
        task_type=TASKS.get("causal" if trainable.backbone.codec.is_causal else settings.task),
        inference_mode=True,
        base_model_name_or_path=base or None,
        revision=revision or None,
    )
    config.save_pretrained(str(directory))
    file = directory / "adapter_config.json"
    written = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(written["target_modules"], list):  # peft holds a set, whose order varies when written
        written["target_modules"].sort()
    replace_text(file, json_text(written))
    named = {peft_name(name): array for name, array in tensors.items()}
    save_tensors(named, directory / "adapter_model.safetensors", {"format": "pt"})
    write_tokenizer(directory, trainable.backbone, trained.direction)


def write_ctranslate2(directory: Path, trained: TrainedModel, trainable: Trainable, quantization: str) -> None:
    """Write model.bin, CTranslate2's config.json and vocabulary, and the tokenizer's files. quantization: "" keeps the dtype.

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
            reason = f"backbone = {trained.settings.backbone!r} cannot be converted: CTranslate2 says {str(error).strip()!r}"
            raise BackboneError(f"{reason}; export with --form transformers") from error
        config = json.loads((converted / "config.json").read_text(encoding="utf-8"))
        if config.get("bos_token", "") is None:
            # CTranslate2 needs the name of a first token, which mBART-50's tokenizer in transformers 5 does not have: <s>.
            # No target begins with it: mBART-50's begin with </s>.
            first = str(trainable.backbone.codec.tokenizer.convert_ids_to_tokens(0))
            replace_text(converted / "config.json", json_text(config | {"bos_token": first}))
        tokenizer = [plain / name for name in tokenizer_files(trainable.backbone.codec)]
        for file in [*converted.iterdir(), *tokenizer]:
            if file.is_file():
                shutil.copyfile(file, directory / file.name)


def write_tokenizer(directory: Path, backbone: Backbone, direction: Direction) -> None:
    """Write the backbone's tokenizer, unchanged except that the direction becomes its default.

    Raises:
        BackboneError: loaded by transformers alone, it does not give the same ids.
    """
    codec, file = backbone.codec, directory / "tokenizer_config.json"
    for name in tokenizer_files(codec):
        if (backbone.directory / name).is_file():
            shutil.copyfile(backbone.directory / name, directory / name)
    if direction.is_one_language:
        given, whole, trained_on = PROBE, False, codec.pieces([PROBE])
    else:
        whole = not (codec.is_causal and codec.tokenizer.chat_template)  # a template writes them
        given, trained_on = codec.as_text(PROBE, direction), codec.encode_source([PROBE], direction, 512)
        if codec.first_id(direction) is not None:
            config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            config |= {"src_lang": codec.language_code(direction.source), "tgt_lang": codec.language_code(direction.target)}
            config.setdefault("tokenizer_class", type(codec.tokenizer).__name__)
            replace_text(file, json_text(config))
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        ids = tokenizer([given], add_special_tokens=whole)["input_ids"]
    except (OSError, ValueError):
        ids = None
    if ids != trained_on:
        raise BackboneError(
            f"backbone = {backbone.name!r}: its tokenizer, written out and loaded by transformers alone, gives other ids than the model "
            "was trained on; export with --form adapter, which needs no tokenizer"
        )


def tokenizer_files(codec: Codec) -> list[str]:
    """Return the file names that a tokenizer of this kind may have; other files of a backbone are not copied."""
    return sorted(OF_ANY_TOKENIZER | set(codec.tokenizer.vocab_files_names.values()))
