"""Text that comes divided into train, dev and test: a file for each split, as `fedlingua corpus prepare` writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, CleaningRules, clean
from fedlingua.corpora.read import Pair, TsvFile, read_pairs, tsv_columns
from fedlingua.corpora.split import SPLITS, Split


@dataclass(frozen=True)
class SplitFiles:
    """A file for each split."""

    train: TsvFile
    dev: TsvFile
    test: TsvFile

    def by_split(self) -> dict[Split, TsvFile]:
        return {"train": self.train, "dev": self.dev, "test": self.test}


def split_files(entry: Mapping[str, Any], where: str, data_dir: Path) -> SplitFiles:
    """The files that an entry's `splits` names, relative to the data directory.

    Raises:
        ConfigError: no place for the split's name, or more than one.
    """
    text = str(entry["splits"])
    if text.count("{}") != 1:
        raise ConfigError(
            f"{where}: splits = {text!r} has no place for the split; write {{}} once, where train, dev and test stand"
        )
    columns = tsv_columns(entry, where)
    return SplitFiles(*(TsvFile(data_dir / text.replace("{}", split), *columns) for split in SPLITS))


def read_divided(files: SplitFiles, direction: Direction, rules: CleaningRules, account: Account) -> dict[Split, list[Pair]]:
    """Every file cleaned by itself, so that a pair counts as a repeated one inside its split only; one account for all."""
    found = {
        split: list(clean(read_pairs(file), direction, rules, account, str(file.path)))
        for split, file in files.by_split().items()
    }
    return {"base": [], **found}
