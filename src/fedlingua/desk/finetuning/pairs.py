"""Reader of texts with a label and marked mentions (docs/files.md): two for relations, one for assertions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import has_half_character, read_objects
from fedlingua.corpora.split import Split
from fedlingua.desk.finetuning.annotated import shown, split_paths


class Marked(NamedTuple):
    """A text whose head, and tail if there is one, are [start, end) in characters."""

    text: str
    head: tuple[int, int]
    tail: tuple[int, int] | None
    label: str


@dataclass(frozen=True)
class PairCorpus:
    """Marked texts of the three splits."""

    splits: dict[Split, list[Marked]]

    @property
    def labels(self) -> list[str]:
        """Labels of the training split, sorted; the other splits have no further ones."""
        return sorted({marked.label for marked in self.splits["train"]})

    def sizes(self) -> dict[str, dict[str, object]]:
        """Return each split's numbers of texts and of their labels."""
        return {
            split: {"texts": len(texts), "labels": dict(sorted(Counter(marked.label for marked in texts).items()))}
            for split, texts in self.splits.items()
        }


def read_pairs_folder(folder: Path) -> PairCorpus:
    """Read the three splits.

    Raises:
        CorpusError: a split is missing, a line is not such an object, a mention is outside its text, mentions overlap, only some lines
            have a tail, there are fewer than two labels, or only devel or test has a label; names file and line.
    """
    splits: dict[Split, list[Marked]] = {}
    labels: set[str] | None = None
    with_tail: bool | None = None
    for split, path in split_paths(folder, (".jsonl", ".jsonl.gz")).items():
        texts = splits.setdefault(split, [])
        for where, entry in read_objects(path, "text, head, tail and label"):
            marked = _marked(entry, where)
            if with_tail not in (None, marked.tail is not None):
                raise CorpusError(
                    f"{where}: {'no tail, but lines before it have one' if with_tail else 'a tail, but lines before it have none'}; "
                    "wanted one in every line (relations) or in none (assertions)"
                )
            with_tail = marked.tail is not None
            if labels is not None and marked.label not in labels:
                raise CorpusError(
                    f"{where}: label is {shown(marked.label)}, which train lacks; it has {', '.join(map(shown, sorted(labels)))}. "
                    "Put some of them into train, or leave them out here"
                )
            texts.append(marked)
        if not texts:
            raise CorpusError(f"{path} has only blank lines; wanted one object a line")
        if split == "train":
            labels = {marked.label for marked in texts}
            if len(labels) < 2:
                raise CorpusError(f"{path}: every line has the same label, so there is nothing to learn; wanted two or more")
    return PairCorpus(splits)


def _marked(entry: Mapping[str, Any], where: str) -> Marked:
    text, label = entry.get("text"), entry.get("label")
    if not isinstance(text, str) or not text.strip():
        raise CorpusError(f"{where}: text is missing, empty or not a string; wanted the text that head and tail are in")
    if not isinstance(label, str) or not label.strip():
        raise CorpusError(f"{where}: label is missing, empty or not a string; wanted the relation's or assertion's name")
    for name, value in (("text", text), ("label", label)):
        if has_half_character(value):
            raise CorpusError(f"{where}: {name} holds half a character (a lone surrogate); mend its escapes")
    head = _mention(entry.get("head"), "head", text, where)
    tail = _mention(entry["tail"], "tail", text, where) if entry.get("tail") is not None else None
    if tail is not None and head[0] < tail[1] and tail[0] < head[1]:
        raise CorpusError(f"{where}: head {list(head)} and tail {list(tail)} overlap; wanted two mentions apart from each other")
    return Marked(text, head, tail, label)


def _mention(given: Any, name: str, text: str, where: str) -> tuple[int, int]:
    if not isinstance(given, list) or [type(offset) for offset in given] != [int, int]:
        raise CorpusError(f"{where}: {name} is missing or not two whole numbers; wanted [start, end) in characters of text")
    (start, end), size = given, len(text)
    if not 0 <= start < end <= size:
        raise CorpusError(f"{where}: {name} is {given}, but text has {size} characters; wanted 0 <= start < end <= {size}")
    if not text[start:end].strip():
        raise CorpusError(f"{where}: {name} is {given}, which is only white space; wanted a mention")
    return start, end
