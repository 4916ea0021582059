"""The base class of loaded backbones and of those described by their files: folder, codec and hash."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.convert import files_hash
from fedlingua.backbones.published import KEPT


@dataclass(kw_only=True)
class BackboneFiles:
    """A backbone's folder and codec. drawn_with: seed of random weights; None: the folder's weights."""

    name: str
    directory: Path
    codec: Codec
    drawn_with: int | None = None

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the names and bytes of the backbone's files: weights (or the seed of random ones), configuration, tokenizer."""
        endings = KEPT | ({".safetensors"} if self.drawn_with is None else set())
        files = files_hash([file for file in sorted(self.directory.iterdir()) if file.suffix in endings])
        return files if self.drawn_with is None else f"{files}-{self.drawn_with}"
