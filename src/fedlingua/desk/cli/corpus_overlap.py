"""`fedlingua corpus overlap`: find sentences that several sites have. Shows counts, never text."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.corpora.overlap import JUDGED, check_left, digests_of, leaks, left_out, shared_sentences, without_leaks
from fedlingua.corpora.registers import Register
from fedlingua.corpora.simulated import OVERLAP_KEY, texts_by_site
from fedlingua.corpora.sites import Federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText, read_sites
from fedlingua.desk.cli.output import console, plain_table, say
from fedlingua.desk.corpora.prepared import has_tab, without_tabs, write_splits
from fedlingua.desk.experiment import read_with_text
from fedlingua.desk.paths import check_absent
from fedlingua.runs.folder import RunFolder, run_about

Overlap = Mapping[str, Mapping[str, Any]]
"""site -> `languages`, as from fedlingua.corpora.overlap.shared_sentences, and `leaks`: number of pairs in dev and test."""
MOST_COLUMNS = 12
"""Most sites for which the table of pairs has room."""


def overlap_of_run(run_dir: Path) -> Overlap:
    """Return the overlap that a run found between its sites; raise RunError if it did not compare them."""
    run_about(run_dir)
    overlap = RunFolder(run_dir).read("overlap.json")
    if overlap is None:
        raise RunError(
            f"{run_dir} has no overlap.json: a run compares its sites' text only if asked to; give a run with overlap = 'report' "
            "or 'remove', or a federation file"
        )
    return dict(overlap["sites"])


def compare_files(file: Path, data: Path | None, whole: bool, to: Path | None) -> Overlap:
    """Return the overlap between a federation file's sites, which are all read here.

    whole: compare all of their cleaned text, not only what each site holds in a run. to: folder for the text without leaks.

    Raises:
        ConfigError, CorpusError: the file or text is faulty, there is only one site, or the text cannot be written as splits.
    """
    federation, data_dir = read_with_text(file, str(data) if data else "")
    if len(federation.sites) < 2:
        raise ConfigError(
            f"{file}: {federation.sites[0].name} is the only site; wanted two or more, to be compared with each other"
        )
    if to is not None:
        check_absent(to)
        if any(site.direction.is_one_language for site in federation.sites) or federation.rules.split.mixed:
            kind = "mixed text" if federation.rules.split.mixed else "text in one language"
            raise ConfigError(
                f"--to writes what `splits` of a federation file reads, which {kind} is not; `fedlingua run --set overlap=remove` leaves "
                "out the same"
            )
    if whole:
        rules = dataclasses.replace(federation.rules, limits=Sizes(), sizes=Sizes())
        # Of a register without `sentences`, sizes say how much text there is.
        growing = [isinstance(site.corpus, Register) and site.corpus.sentences is None for site in federation.sites]
        sites = tuple(
            dataclasses.replace(site, sizes=site.sizes.before(federation.rules.sizes) if grows else Sizes())
            for site, grows in zip(federation.sites, growing, strict=True)
        )
        texts_of_all = read_sites(dataclasses.replace(federation, rules=rules, sites=sites), frozenset())
        held: Mapping[str, Mapping[str, SiteText]] = {site: {site: text} for site, text in texts_of_all.items()}
    else:
        held = texts_by_site(file, data_dir)
    digests = {site: digests_of(texts.values(), OVERLAP_KEY) for site, texts in held.items()}
    shared, leaking = shared_sentences(digests), leaks(digests)
    left = {site: [without_leaks(text, leaking[site], OVERLAP_KEY) for text in texts.values()] for site, texts in held.items()}
    counts = {site: left_out(texts.values(), left[site]) for site, texts in held.items()}
    if to is not None:
        check_left({site: {split: len(texts[site].splits[split]) for split in JUDGED} for site, texts in held.items()}, counts)
        _write(federation, {site: texts[0] for site, texts in left.items()}, to)
    return {site: {"languages": shared[site], "leaks": counts[site]} for site in held}


def _write(federation: Federation, texts: Mapping[str, SiteText], to: Path) -> None:
    named = {site: {split: [*map(without_tabs, text.splits[split])] for split in SPLITS} for site, text in texts.items()}
    account = {
        site: {
            "direction": str(text.direction),
            "read": text.account.read,
            "kept": text.account.kept,
            "dropped": text.account.dropped,
            "sizes": {split: len(text.splits[split]) for split in SPLITS},
            "tabs": sum(has_tab(pair) for pairs in text.splits.values() for pair in pairs),
        }
        for site, text in texts.items()
    }
    write_splits(named, {"federation": federation.name, "sites": account}, to)


def show_overlap(overlaps: Overlap, to: Path | None) -> dict[str, Any]:
    """Print tables of the overlap and return it for programs."""
    console().print(_sites_table(overlaps))
    if len(overlaps) <= MOST_COLUMNS:
        console().print(_pairs_table(overlaps))
    leaking = {site: of["leaks"] for site, of in overlaps.items() if any(of["leaks"].values())}
    pairs = ", ".join(f"{site} {leaks['dev']} + {leaks['test']}" for site, leaks in leaking.items())
    say(f"pairs of dev + test with a sentence that another site trains on: {pairs or 'none'}")
    counts = {site: [of.get("trained", {}) for of in overlap["languages"].values()] for site, overlap in overlaps.items()}
    trained = {site: {split: sum(of.get(split, 0) for of in own) for split in JUDGED} for site, own in counts.items()}
    listed = ", ".join(f"{site} {own['dev']} + {own['test']}" for site, own in trained.items() if any(own.values()))
    say(f"sentences of dev + test that the site's own train has, too: {listed or 'none'}")
    if to is not None:
        say(f"written: {to}")
        say(f'a federation file reads it with splits = "{to.name}/SITE.{{}}.tsv.gz" at each site, [split] mode = "given"')
    return {"sites": overlaps, "folder": to}


def _sites_table(overlaps: Overlap) -> Table:
    columns = ("site", "side", "sentences", "elsewhere", "share", *SPLITS)
    caption = (
        "distinct sentences, normalised, of languages of two sites at least; elsewhere: in any split; last: in others' train"
    )
    table = plain_table(*columns, left=("side",), caption=caption)
    for site, overlap in overlaps.items():
        for language, of in _common(overlap):
            have, shared = of["sentences"], of["elsewhere"]
            numbers = [f"{shared[split]:,} of {have[split]:,}" for split in SPLITS]
            table.add_row(site, language, f"{have['all']:,}", f"{shared['all']:,}", _share(shared["all"], have["all"]), *numbers)
    return table


def _pairs_table(overlaps: Overlap) -> Table:
    caption = "share of a row's sentences that the column's site has; in brackets those of dev + test that it trains on"
    table = plain_table("site", "side", *overlaps, left=("side",), caption=caption)
    for site, overlap in overlaps.items():
        for language, of in _common(overlap):
            cells = dict.fromkeys(overlaps, "")
            for other, shared in of["at"].items():
                trained = f" ({shared['dev']} + {shared['test']})" if shared["dev"] or shared["test"] else ""
                cells[other] = f"{_share(shared['all'], of['sentences']['all'])}{trained}"
            table.add_row(site, language, *cells.values())
    return table


def _common(overlap: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the languages that another site has, too."""
    return [(language, of) for language, of in overlap["languages"].items() if of["at"]]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
