"""`fedlingua corpus`: check, convert and split the text of sites. Any text that it shows is for the corpus's owner."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.clean import Account, clean
from fedlingua.corpora.identify import check_columns
from fedlingua.corpora.split import SPLITS, SplitRules, check_shares, split_sites
from fedlingua.desk.cli.corpus_input import CleaningOptions, CorpusInput
from fedlingua.desk.cli.lazy import OpenGroup
from fedlingua.desk.cli.options import Data
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say
from fedlingua.desk.corpora.prepared import Prepared, gathered, write_splits
from fedlingua.desk.corpora.statistics import Statistics, as_json, corpus_statistics, summary
from fedlingua.desk.corpora.write import target_of, write_pairs
from fedlingua.desk.paths import check_absent, check_folder_to_write

commands = Commands(group=True, cls=OpenGroup)
_WIDTH = 60
"""Most characters of a sample shown on a terminal."""


@commands.command("check", epilog=example("fedlingua corpus check de-fr.tsv.gz --direction de-fr --set max-words=80"))
def corpus_check(
    corpus: CorpusInput,
    cleaning: CleaningOptions,
    samples: Annotated[int, Option(min=0, help="Pairs to show for each reason; they quote the text.")] = 3,
    backbone: Annotated[str, Option(help="Also check that this backbone knows the languages and the script.")] = "",
) -> Answer:
    """Check a whole corpus: what it holds, what cleaning drops, and why."""
    pairs, rules = corpus.read(), cleaning.read()
    some = list(islice(corpus.files.read(), 1000))
    columns = check_columns(some, corpus.parsed, corpus.corpus)
    statistics = corpus_statistics(pairs, corpus.parsed, rules, samples, corpus.corpus)
    answer = {"corpus": corpus.corpus, **as_json(statistics, corpus.parsed)}
    _show_statistics(corpus, statistics)
    answer |= corpus.warn(columns)
    if backbone:
        from fedlingua.backbones.directories import backbone_directory
        from fedlingua.backbones.knowledge import doubts
        from fedlingua.desk.described import describe

        answer["doubts"] = list(doubts(describe(backbone_directory(backbone), backbone), corpus.parsed, some))
        warnings = "\n".join(f"warning: {text}" for text in answer["doubts"])
        say(warnings or f"backbone {backbone} knows both languages and their scripts")
    account = statistics.account
    if rules.strict and account.kept < account.read:
        reasons = ", ".join(f"{reason} {count}" for reason, count in account.dropped.items())
        raise CorpusError(
            f"{corpus.corpus}: {account.read - account.kept} of {account.read} pairs would be dropped ({reasons})", answer=answer
        )
    return answer


@commands.command("convert", epilog=example("fedlingua corpus convert memory.tmx --direction de-fr --to de-fr.tsv.gz --clean"))
def corpus_convert(
    corpus: CorpusInput,
    cleaning: CleaningOptions,
    to: Annotated[Path, Option(help="File to write: .tsv, .jsonl, .tmx (also .gz), .parquet; with --as moses a stem of two.")],
    as_: Annotated[
        Literal["tsv", "moses", "jsonl", "parquet", "tmx"] | None, Option("--as", help="Format; default: by the ending of --to.")
    ] = None,
    clean_: Annotated[bool, Option("--clean", help="Clean the text; --rules, --set and --strict imply it.")] = False,
) -> Answer:
    """Convert a corpus to another format. The file is written whole or not at all."""
    pairs, account, name = corpus.read(), Account(), corpus.corpus
    rules = cleaning.read() if clean_ or cleaning != CleaningOptions() else None
    target = target_of(to, as_, corpus.parsed)
    if rules is None:
        written = write_pairs(pairs, target)
    else:
        written = write_pairs(clean(pairs, corpus.parsed, rules, account, name), target, lambda: account.check(name))
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in account.dropped.items())
        say(f"read {account.read:,}, kept {account.kept:,}, dropped {reasons or 'none'}")
    say(f"written: {' and '.join(map(str, target.paths))}, {written:,} pairs")
    cleaned = {} if rules is None else {"read": account.read, "kept": account.kept, "dropped": account.dropped}
    return {"files": list(target.paths), "pairs": written, **cleaned, **corpus.warn()}


@commands.command(
    "split", epilog=example("fedlingua corpus split de-fr.tsv.gz --direction de-fr --to data/de-fr --shares 0.8,0.1,0.1")
)
def corpus_split(
    corpus: CorpusInput,
    cleaning: CleaningOptions,
    to: Annotated[Path, Option(help="Folder of the splits; it must not exist yet.")],
    mode: Annotated[
        Literal["components", "shared-side", "paper"],
        Option(help="How to split; components: no sentence in two splits. As `mode` in a federation file's table `split`."),
    ] = "components",
    shares: Annotated[str, Option(help="Shares of train, dev and test.")] = "0.6,0.2,0.2",
    key: Annotated[str, Option(help="Text that seeds the split.")] = "fedlingua",
) -> Answer:
    """Clean a corpus and split it into train, dev and test, for `splits` in a federation file.

    TO/<direction>.<split>.tsv.gz and account.json are written all at once or not at all. Same text and key, same bytes.
    """
    try:
        train, dev, test = map(float, shares.split(","))
    except ValueError:
        raise ConfigError(f"--shares {shares}: wanted three shares that add up to 1, as in 0.6,0.2,0.2") from None
    rules = SplitRules(mode, key, train, dev, test)
    read, cleaned = corpus.read(), cleaning.read()
    check_shares(rules, "--shares")
    check_absent(to)
    check_folder_to_write(to, "--to")
    direction, account, name = corpus.parsed, Account(), corpus.corpus
    pairs = list(clean(read, direction, cleaned, account, name))
    account.check(name)
    parts = split_sites({name: (direction, pairs)}, rules)[name]
    account.take_back("in-train", account.kept - sum(map(len, parts.values())))
    splits, note = {split: parts[split] for split in SPLITS}, "in train: pairs with a sentence that train has too"
    if missing := [split for split in SPLITS if not parts[split]]:
        sizes = ", ".join(f"{split} {len(part)}" for split, part in splits.items())
        raise CorpusError(f"{name}: no {missing[0]} sentence is left ({sizes}); give more text, or other --shares")
    made = gathered(name, key, False, {direction: splits}, {direction: [Path(name)]}, {direction: account}, note)
    prepared = replace(made, account={"mode": mode, "key": key, "directions": made.account["directions"]})
    return {**written("written", prepared, to), **corpus.warn()}


@commands.command("overlap", epilog=example("fedlingua corpus overlap federation.toml --data data --to apart"))
def corpus_overlap(
    where: Annotated[Path, Argument(metavar="FEDERATION|RUN", help="Federation file with corpora, or the folder of a run.")],
    data: Data = None,
    whole: Annotated[
        bool,
        Option(
            "--whole",
            help="Compare all of the sites' cleaned text: no limits, no text for the backbone, sizes only of what is generated.",
        ),
    ] = False,
    to: Annotated[
        Path | None, Option(help="Also write the text without leaking dev and test pairs: TO/SITE.SPLIT.tsv.gz.")
    ] = None,
) -> Answer:
    """Find sentences that several sites have, and dev and test pairs that another site trains on. For a run: by its sites' hashes."""
    from fedlingua.desk.cli.corpus_overlap import compare_files, overlap_of_run, show_overlap

    if where.is_dir() and (data or whole or to):
        raise BadParameter("for a run only counts are known; --data, --whole and --to go with a federation file")
    return show_overlap(overlap_of_run(where) if where.is_dir() else compare_files(where, data, whole, to), to)


def _show_statistics(corpus: CorpusInput, statistics: Statistics) -> None:
    account, sides = statistics.account, corpus.parsed.sides
    pairs = f"read {account.read:,}, kept {account.kept:,}, dropped {account.read - account.kept:,}"
    console().print(f"{corpus.corpus}, {corpus.parsed}: {pairs}")
    if account.dropped:
        shares = [(name, f"{count:,}", f"{100 * count / account.read:.2f} %") for name, count in account.dropped.items()]
        console().print(plain_table("dropped", "pairs", "share", rows=shares))
    lengths = plain_table("length", "in", "least", "median", "mean", "95 %", "most")
    for language, counts in zip(sides, statistics.lengths, strict=True):
        of = summary(counts, language)
        lengths.add_row(language, of["unit"], *(f"{of[key]:g}" for key in ("least", "median", "mean", "p95", "most")))
    console().print(lengths)
    console().print(f"repeated: {', '.join(f'{name} {count:,}' for name, count in statistics.repeated.items())}")
    samples = [(name, str(number), *map(_clipped, pair)) for name, some in statistics.samples.items() for number, pair in some]
    if samples:
        console().print(plain_table("dropped for", "pair", *sides, rows=samples, left=sides))


def _clipped(sentence: str) -> str:
    """Return the beginning of a sentence, with a dot for each unprintable character."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in sentence[:_WIDTH])
    return f"{shown}…" if len(sentence) > _WIDTH else shown


def written(what: str, prepared: Prepared, folder: Path) -> Answer:
    """Write the splits to a folder, and print a table with the account of every direction."""
    write_splits(prepared.splits, prepared.account, folder)
    table = plain_table("direction", "read", "dropped", *SPLITS, "dev in train", "test in train", caption=prepared.note)
    for direction, account in prepared.account["directions"].items():
        leaks = [str(account["also_in_train"][split]["same_site"]) for split in ("dev", "test")]
        sizes = [str(account["sizes"][split]) for split in SPLITS]
        table.add_row(direction, str(account["read"]), str(sum(account["dropped"].values())), *sizes, *leaks)
    console().print(table)
    say(f"{what}: {folder}")
    return {"folder": folder, **prepared.account}
