"""`fedlingua corpus convert`: any corpus that can be read into a file of another form, as it stands or cleaned."""

from typing import Any

from rich.console import Console

from fedlingua.corpora.clean import Account, CleaningRules, clean
from fedlingua.desk.cli.corpus_input import CorpusInput
from fedlingua.desk.corpora.write import Target, write_pairs


def convert_corpus(corpus: CorpusInput, target: Target, rules: CleaningRules | None, console: Console) -> dict[str, Any]:
    """Write all pairs, or, with rules, those that they keep.

    Raises:
        CorpusError: it cannot be read or written, or nothing is kept of it; then nothing is written.
    """
    account, pairs = Account(), corpus.read()
    if rules is not None:
        pairs = clean(pairs, corpus.direction, rules, account, corpus.name)
        written = write_pairs(pairs, target, lambda: account.check(corpus.name))
    else:
        written = write_pairs(pairs, target)
    if rules is not None:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in account.dropped.items())
        console.print(f"read {account.read:,}, kept {account.kept:,}, dropped {reasons or 'none'}", soft_wrap=True)
    names = " and ".join(map(str, target.paths))
    console.print(f"written: {names}, {written:,} pairs", markup=False, highlight=False, soft_wrap=True)
    cleaned = {} if rules is None else {"read": account.read, "kept": account.kept, "dropped": account.dropped}
    return {"files": list(target.paths), "pairs": written, **cleaned}
