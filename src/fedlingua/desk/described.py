"""Describe a backbone from its files, without torch and transformers, which take seconds to load."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.convert import as_safetensors
from fedlingua.backbones.families import check_type
from fedlingua.backbones.fingerprint import BackboneFiles
from fedlingua.backbones.layouts import Layout, layout_from
from fedlingua.common.errors import BackboneError

_LANGUAGE = re.compile(r'"__([a-z]{2,3})__"|"([a-z]{2,3}_[A-Z]{2})"')
_WITH_SCRIPT = re.compile(r'"([a-z]{2,3}_[A-Z][a-z]{3})"')
"""Patterns of a language's token: of M2M-100 and mBART-50, and of NLLB."""
_TOLD_BY_FILES = ("m2m_100", "mbart", "xlm-roberta", "roberta", "camembert")
_NO_PARAMETER = ("final_logits_bias", "position_ids", "embed_positions.weights", "lm_head.decoder.bias")
_TIED = ("shared.weight", "word_embeddings.weight", "embed_tokens.weight", "lm_head.weight", "decoder.weight")
"""Ends of tensors' names in a weights file: of tensors that are no parameters; of names of tied weights, the first one kept."""


@dataclass(kw_only=True)
class Described(BackboneFiles):
    """A backbone described by its files. config: as in config.json. shapes: of the parameters. item_bytes: of a stored number."""

    config: Any
    shapes: Mapping[str, tuple[int, ...]]
    item_bytes: int

    @property
    def layout(self) -> Layout:
        return layout_from(self.config, self.shapes)

    @property
    def num_parameters(self) -> int:
        return sum(map(math.prod, self.shapes.values()))


def describe(directory: Path, name: str = "", drawn_with: int | None = None) -> Described:
    """Describe a backbone by its files; convert a pytorch_model.bin first. Raise BackboneError where `load_backbone` does."""
    name = name or str(directory)
    try:
        directory = as_safetensors(directory)
        raw = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        check_type(raw.get("model_type"), name)
        if raw["model_type"] not in _TOLD_BY_FILES:
            return _loaded(directory, name, drawn_with)
        assumed = {"hidden_size": raw.get("d_model"), "tie_word_embeddings": True, "pad_token_id": 1, "eos_token_id": 2}
        config = SimpleNamespace(**{**assumed, **raw})
        headers = {key: about for file in sorted(directory.glob("*.safetensors")) for key, about in _header(file)}
        tokenizer = FileTokenizer(directory, config)
    except (OSError, ValueError, RuntimeError) as error:
        raise BackboneError(f"backbone = {name!r} cannot be read: {error}") from error
    shapes = {key: tuple(about["shape"]) for key, about in headers.items() if not key.endswith(_NO_PARAMETER)}
    if config.tie_word_embeddings:
        for other in [key for end in _TIED for key in shapes if f".{key}".endswith(f".{end}")][1:]:
            shapes.pop(other, None)
    stored = 2 if {about["dtype"] for about in headers.values()} <= {"F16", "BF16"} else 4
    about = {"name": name, "directory": directory, "codec": Codec(tokenizer), "drawn_with": drawn_with}
    return Described(**about, config=config, shapes=shapes, item_bytes=stored)  # type: ignore[arg-type]


def _loaded(directory: Path, name: str, drawn_with: int | None) -> Described:
    """Describe a backbone whose files this module cannot read: load it, which takes seconds."""
    from fedlingua.backbones.load import load_backbone

    backbone = load_backbone(directory, name, random_weights=drawn_with)
    shapes = {key: tuple(parameter.shape) for key, parameter in backbone.model.named_parameters()}
    about = {"name": name, "directory": backbone.directory, "codec": backbone.codec, "drawn_with": drawn_with}
    return Described(**about, config=backbone.model.config, shapes=shapes, item_bytes=4)  # type: ignore[arg-type]


def _header(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every tensor's name with its shape and dtype from a safetensors file: 8 bytes of length, then that much JSON."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    yield from ((name, about) for name, about in header.items() if name != "__metadata__")


class FileTokenizer:
    """The parts of a tokenizer that a `Codec` needs: its languages, and which pieces of text are unknown (id -1)."""

    unk_token_id = -1

    def __init__(self, directory: Path, config: Any) -> None:
        names = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")
        texts = [file.read_text(encoding="utf-8") for name in names if (file := directory / name).is_file()]
        self.lang_code_to_id = {code: 0 for text in texts for codes in _LANGUAGE.findall(text) for code in codes if code}
        self.pad_token_id, self.eos_token_id = config.pad_token_id, config.eos_token_id
        self._with_script = {code for text in texts for code in _WITH_SCRIPT.findall(text)}
        self._pieces = next(iter(directory.glob("*.model")), None)
        self._vocabulary, self._whole = directory / "vocab.json", directory / "tokenizer.json"

    def get_added_vocab(self) -> dict[str, int]:
        return dict.fromkeys(self._with_script, 0)

    def __call__(self, sentences: Sequence[str], add_special_tokens: bool = False) -> dict[str, list[list[int]]]:
        if self._pieces is None and self._whole.is_file():
            from tokenizers import Tokenizer

            whole = Tokenizer.from_file(str(self._whole))
            rows = [whole.encode(sentence, add_special_tokens=False).ids for sentence in sentences]
            unknown = {whole.token_to_id(text) for text in ("<unk>", "[UNK]")}
            return {"input_ids": [[-1 if number in unknown else number for number in row] for row in rows]}
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_file=str(self._pieces))
        known = json.loads(self._vocabulary.read_text(encoding="utf-8")) if self._vocabulary.is_file() else None
        texts: list[list[str]] = processor.encode(list(sentences), out_type=str)

        def is_known(piece: str) -> bool:
            return piece in known if known is not None else processor.piece_to_id(piece) != processor.unk_id()

        return {"input_ids": [[0 if is_known(piece) else -1 for piece in pieces] for pieces in texts]}
