"""`fedlingua corpus split`: a corpus into train, dev and test, written as a federation's `splits` reads them."""

from pathlib import Path
from typing import Any

from rich.console import Console

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.files import check_folder_to_write
from fedlingua.corpora.clean import Account, CleaningRules, clean
from fedlingua.corpora.split import SPLITS, SplitRules, check_shares, split_sites
from fedlingua.desk.cli.corpus import splits_table, write_splits
from fedlingua.desk.cli.corpus_input import CorpusInput
from fedlingua.desk.corpora.prepared import Prepared, account_of, has_tab, leaks_of_pairs, without_tabs

_NOTE = "in train: pairs with a sentence that train has too"


def split_corpus(corpus: CorpusInput, cleaning: CleaningRules, rules: SplitRules, to: Path, console: Console) -> dict[str, Any]:
    """Clean and split, then write TO/<direction>.<split>.tsv.gz and account.json, all at once or not at all. Same text and key, same bytes.

    Raises:
        ConfigError: shares that do not add up to 1, or a folder that is there already. CorpusError: text that cannot be read, or of which a
            split gets nothing.
    """
    check_shares(rules, "--shares")
    if to.exists():
        raise ConfigError(f"{to} is there already; remove it, or give another folder with --to")
    check_folder_to_write(to, "--to")
    direction, account = corpus.direction, Account()
    pairs = list(clean(corpus.read(), direction, cleaning, account, corpus.name))
    account.check(corpus.name)
    found = split_sites({corpus.name: (direction, pairs)}, rules)[corpus.name]
    for split in SPLITS:
        if not found[split]:
            told = ", ".join(f"{part} {len(found[part])}" for part in SPLITS)
            raise CorpusError(f"{corpus.name}: no {split} sentence is left ({told}); give more text, or other --shares")
    tabs = sum(has_tab(pair) for pair in pairs)
    splits = {direction: {split: [without_tabs(pair) for pair in found[split]] for split in SPLITS}}
    counts = account_of([Path(corpus.name).name], account, {split: len(found[split]) for split in SPLITS})
    directions = {str(direction): {**counts, "tabs": tabs, "also_in_train": leaks_of_pairs(splits)[direction]}}
    prepared = Prepared(splits, {"mode": rules.mode, "key": rules.key, "directions": directions}, _NOTE)
    write_splits(prepared, to)
    console.print(splits_table(prepared))
    console.print(f"written: {to}", markup=False, highlight=False, soft_wrap=True)
    return {"folder": to, **prepared.account}
