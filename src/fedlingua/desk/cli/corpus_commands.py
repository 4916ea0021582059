"""`fedlingua corpus`: what can be asked of text, and its options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedlingua.desk.cli.output import Answer, Commands, console, example

commands = Commands(no_args_is_help=True, help="Text for the sites of a federation: look at it, convert it, divide it.")


@commands.command("prepare", epilog=example("fedlingua corpus prepare ted2020 --from downloads --to data"))
def corpus_prepare(
    name: Annotated[str, typer.Argument(help="ted2020, europarl, mtnt or uncorpus.")],
    source: Annotated[
        Path, typer.Option("--from", help="Folder of the downloads: OPUS's Moses files, zipped or not; the other two unpacked.")
    ],
    to: Annotated[Path, typer.Option(help="Data folder; the splits go into a folder in it.")],
    uniform: Annotated[bool, typer.Option("--uniform", help="Every pair the same size (Liu et al. 2023, appendix C).")] = False,
    no_leaks: Annotated[bool, typer.Option("--no-leaks", help="No sentence in two splits, at any two sites.")] = False,
    key: Annotated[str, typer.Option(help="Key of the shuffle and of the choice.")] = "fedlingua",
) -> Answer:
    """Turn downloads into the papers' splits and sizes: of Liu et al. 2023 (ted2020, europarl), of MetaSend (mtnt, uncorpus)."""
    from fedlingua.desk.cli.corpus import prepare_corpus

    return prepare_corpus(name, source, to, uniform, no_leaks, key, console())


CorpusArgument = Annotated[
    str,
    typer.Argument(
        help="Corpus: .tsv, .tmx, .jsonl (also .gz), .parquet, .zip of OPUS, X of X.de and X.fr, dev.{}.txt, a folder."
    ),
]
DirectionOption = Annotated[str, typer.Option(help="Source and target, such as de-fr.")]
KindOption = Annotated[
    str | None, typer.Option(help="tsv, moses, nway, opus, tmx, jsonl, parquet, dataset; default: by the name's ending.")
]
CorpusOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="More of the corpus, as in a federation file: columns=[1,0], fields, subset, split."),
]
RulesOption = Annotated[Path | None, typer.Option("--rules", help="File with [cleaning]: a federation file or a recipe.")]
RuleChanges = Annotated[list[str] | None, typer.Option("--set", help="key=value of [cleaning]; goes before the file's.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Fail where a pair would be dropped.")]


@commands.command("check", epilog=example("fedlingua corpus check de-fr.tsv.gz --direction de-fr --set max-words=80"))
def corpus_check(
    corpus: CorpusArgument,
    direction: DirectionOption,
    kind: KindOption = None,
    option: CorpusOptions = None,
    rules: RulesOption = None,
    set_: RuleChanges = None,
    strict: StrictOption = False,
    samples: Annotated[int, typer.Option(min=0, help="Pairs shown for each reason; they quote the text.")] = 3,
) -> Answer:
    """Read a corpus to its end: what is in it, what cleaning drops of it and why."""
    from fedlingua.desk.cli.corpus_check import check_corpus
    from fedlingua.desk.cli.corpus_input import cleaning_rules, corpus_input

    found = corpus_input(corpus, direction, kind, option or [])
    return check_corpus(found, cleaning_rules(rules, set_ or [], strict), samples, console())


@commands.command("convert", epilog=example("fedlingua corpus convert memory.tmx --direction de-fr --to de-fr.tsv.gz --clean"))
def corpus_convert(
    corpus: CorpusArgument,
    direction: DirectionOption,
    to: Annotated[
        Path, typer.Option(help="The file: .tsv, .jsonl, .tmx (also .gz) or .parquet; with --as moses the stem of two.")
    ],
    as_: Annotated[
        Literal["tsv", "moses", "jsonl", "parquet", "tmx"] | None,
        typer.Option("--as", help="Form; default: by the ending of --to."),
    ] = None,
    kind: KindOption = None,
    option: CorpusOptions = None,
    clean: Annotated[bool, typer.Option("--clean", help="Drop what cleaning drops; so do --rules, --set and --strict.")] = False,
    rules: RulesOption = None,
    set_: RuleChanges = None,
    strict: StrictOption = False,
) -> Answer:
    """Write a corpus in another form, whole or not at all."""
    from fedlingua.desk.cli.corpus_convert import convert_corpus
    from fedlingua.desk.cli.corpus_input import cleaning_rules, corpus_input
    from fedlingua.desk.corpora.write import target_of

    found = corpus_input(corpus, direction, kind, option or [])
    asked = cleaning_rules(rules, set_ or [], strict) if clean or rules or set_ or strict else None
    return convert_corpus(found, target_of(to, as_, found.direction), asked, console())


@commands.command("overlap", epilog=example("fedlingua corpus overlap federation.toml --data data --to apart"))
def corpus_overlap(
    where: Annotated[
        Path, typer.Argument(metavar="FEDERATION|RUN", help="Federation file with corpora, or the folder of a run.")
    ],
    data: Annotated[Path | None, typer.Option("--data", help="Folder that the corpora's paths are relative to.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="All of the sites' cleaned text: no limits, no sizes, nothing kept for the backbone.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option(help="Write the text without the dev and test pairs that leak: TO/SITE.SPLIT.tsv.gz.")
    ] = None,
) -> Answer:
    """What of each site's text stands at other sites, and what of its dev and test they train on. Of a run: what its sites' hashes told."""
    from fedlingua.desk.cli.corpus_overlap import compared_files, show_overlap, told_by_run

    if where.is_dir():
        if data or whole or to:
            raise typer.BadParameter("of a run only counts are known; --data, --whole and --to go with a federation file")
        found = told_by_run(where)
    else:
        found = compared_files(where, data, whole, to)
    return show_overlap(found, to, console())


@commands.command(
    "split", epilog=example("fedlingua corpus split de-fr.tsv.gz --direction de-fr --to data/de-fr --shares 0.8,0.1,0.1")
)
def corpus_split(
    corpus: CorpusArgument,
    direction: DirectionOption,
    to: Annotated[Path, typer.Option(help="Folder of the splits, which must not be there yet.")],
    mode: Annotated[
        Literal["components", "shared-side", "paper"], typer.Option(help="components: no sentence in two splits; see [split].")
    ] = "components",
    shares: Annotated[str, typer.Option(help="Of train, dev and test.")] = "0.6,0.2,0.2",
    key: Annotated[str, typer.Option(help="Decides what goes where.")] = "fedlingua",
    kind: KindOption = None,
    option: CorpusOptions = None,
    rules: RulesOption = None,
    set_: RuleChanges = None,
    strict: StrictOption = False,
) -> Answer:
    """Clean a corpus and divide it into train, dev and test, as `splits` of a federation file reads them."""
    from fedlingua.corpora.split import SplitRules
    from fedlingua.desk.cli.corpus_input import cleaning_rules, corpus_input, parse_shares
    from fedlingua.desk.cli.corpus_split import split_corpus

    found = corpus_input(corpus, direction, kind, option or [])
    asked = SplitRules(mode, key, *parse_shares(shares))
    return split_corpus(found, cleaning_rules(rules, set_ or [], strict), asked, to, console())
