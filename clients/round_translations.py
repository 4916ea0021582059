"""A site's first dev sentences as each round's model translates them, kept for people to look at: they never leave the site.

One file a round, `0003.jsonl`, one line a sentence. A round that is made again makes its own file again and touches no other, so a resumed
run leaves the bytes of an unbroken one, even where a client outlives its server.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.runs.folder import replace_text


class RoundTranslations:
    """A folder of these files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def cut(self, number: int) -> None:
        """Remove round `number` and what comes after it, which is about to be made: what lies there is of an attempt that died."""
        for file in self.directory.glob("*.jsonl"):
            if file.stem.isdecimal() and int(file.stem) >= number:
                file.unlink()

    def save(self, number: int, lines: Sequence[str]) -> None:
        """Whole or not at all."""
        replace_text(self.directory / f"{number:04d}.jsonl", "".join(f"{line}\n" for line in lines))


def round_lines(number: int, text: str, direction: Direction, pairs: Sequence[Pair], translations: Sequence[str]) -> list[str]:
    """One JSON object a sentence; sentences are counted from 1. text: the name of the site that they are of."""
    about = {"round": number, "text": text, "direction": str(direction)}
    return [
        json.dumps(
            {**about, "sentence": place, "source": pair.source, "reference": pair.target, "translation": translation},
            ensure_ascii=False,
        )
        for place, (pair, translation) in enumerate(zip(pairs, translations, strict=True), start=1)
    ]
