"""Make the papers' splits from downloaded corpora, and write them with their account."""

import dataclasses
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import check_absent, check_folder_to_write
from fedlingua.common.folders import replace_folder
from fedlingua.common.tables import check_choice
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua.desk.cli.output import progress_bar
from fedlingua.desk.corpora.mtnt import prepare_mtnt
from fedlingua.desk.corpora.prepare import PAPER_CORPORA, UNIFORM, prepare
from fedlingua.desk.corpora.prepared import Prepared, Report
from fedlingua.desk.corpora.uncorpus import prepare_uncorpus

Preparing = Callable[[Path, str, bool, Report], Prepared]
"""(folder of the downloads, key, no_leaks, report) -> the splits and account to write."""
CORPORA: dict[str, Preparing] = {
    **{name: partial(prepare, corpus) for name, corpus in PAPER_CORPORA.items()},
    "mtnt": prepare_mtnt,
    "uncorpus": lambda folder, key, no_leaks, report: prepare_uncorpus(folder, key, report),
}


def prepare_corpus(name: str, source: Path, to: Path, uniform: bool, no_leaks: bool, key: str) -> tuple[Path, Prepared]:
    """Write TO/<name>/<direction>.<split>.tsv.gz and account.json, whole or not at all; return that folder and its content.

    The folder is called <name>, <name>-uniform, <name>-no-leaks or <name>-uniform-no-leaks. Same downloads and key, same bytes.

    Raises:
        ConfigError: the corpus is unknown or lacks the option, or the folder exists already. CorpusError: as in `prepare`.
    """
    check_choice(name, CORPORA, "corpus")
    if no_leaks and name == "uncorpus":
        raise ConfigError(f"--no-leaks: {name} never has a sentence in two splits; leave the option out")
    if uniform and name not in PAPER_CORPORA:
        raise ConfigError(f"--uniform: {name} has one size for all pairs; the option is for {' and '.join(PAPER_CORPORA)}")
    preparing = CORPORA[name]
    if uniform:
        corpus = PAPER_CORPORA[name]
        preparing = partial(prepare, dataclasses.replace(corpus, sizes=dict.fromkeys(corpus.sizes, UNIFORM)))
    target = to / "-".join([name, *(["uniform"] if uniform else []), *(["no-leaks"] if no_leaks else [])])
    check_absent(target)
    check_folder_to_write(target, "--to")
    with progress_bar(name) as report:
        prepared = preparing(source, key, no_leaks, lambda direction, done, of: report(f"{name} {direction}", done, of))
    write_splits(prepared.splits, prepared.account, target)
    return target, prepared


def write_splits(named: Mapping[Any, Mapping[Split, Sequence[Pair]]], account: Mapping[str, Any], target: Path) -> None:
    """Write target/<name>.<split>.tsv.gz and account.json, all at once or not at all. named: splits by site or direction."""

    def write(aside: Path) -> None:
        for name, splits in named.items():
            for split, pairs in splits.items():
                text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
                # Without name and time, so that the same text gives the same bytes.
                (aside / f"{name}.{split}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        (aside / "account.json").write_text(json.dumps(account, indent=2) + "\n", encoding="utf-8")

    replace_folder(target, write)
