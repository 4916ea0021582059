"""Every file under experiments/ loads, and the federations among them keep what they promise."""

import dataclasses
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from experiments import leak
from experiments.verify import RESULTS, Result, suite_file
from fedlingua.backbones.load import load_backbone
from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import Relatives, by_families
from fedlingua.common.errors import CorpusError
from fedlingua.common.files import read_toml
from fedlingua.corpora.read import TsvFile
from fedlingua.corpora.recipe import forbidden_sides, read_recipe_text
from fedlingua.corpora.records import JsonDocuments
from fedlingua.corpora.simulated import held_texts
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Side, Split, seen_sides
from fedlingua.corpora.texts import SiteText, read_sites
from fedlingua.desk.check_settings import check_corpora
from fedlingua.desk.cli.app import app
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.pretraining.build import SPECIAL_TOKENS, build_model, build_tokenizer
from fedlingua.desk.pretraining.demo import base_register
from fedlingua.desk.pretraining.recipe import read_recipe
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.runs.plan import numbers_of_clusters, planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import flat_keys
from fedlingua.settings.table import OPTIONS
from fedlingua.training.sampling import num_samples
from fedlingua_demo.phrasebook import base_corpus
from fedlingua_lab.corpora.prepare import PAPER_CORPORA
from fedlingua_lab.corpora.uncorpus import DIRECTIONS
from fedlingua_lab.suites.read import check_figures, is_suite, read_suite, variants

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
DATA = ROOT / "../shared/data"

FEDERATIONS = sorted((EXPERIMENTS / "federations").rglob("*.toml"))
BACKBONES = sorted((EXPERIMENTS / "backbones").rglob("*.toml"))
FILES = sorted(
    path
    for path in EXPERIMENTS.rglob("*.toml")
    if path.relative_to(EXPERIMENTS).parts[0] not in ("results", "federations", "backbones")
)
SENTENCES = base_corpus(120, 3)["de"]
SUITE_FILES = [path for path in FILES if is_suite(read_toml(path))]
SUITES = [Path(f"{path}:{variant}" if variant else path) for path in SUITE_FILES for variant in variants(path)]
RUNS = [path for path in FILES if path not in SUITE_FILES]


def named(path: Path) -> str:
    return str(path.relative_to(EXPERIMENTS))


def sides(texts: Mapping[str, SiteText], *splits: Split) -> set[Side]:
    """Every sentence, on either side, of these splits at all sites, in the form in which equal ones are the same."""
    return {
        side
        for text in texts.values()
        for split in splits
        for pair in text.splits[split]
        for side in seen_sides(pair, text.direction)
    }


def test_there_are_files_of_every_kind() -> None:
    assert EXPERIMENTS / "demo.toml" in RUNS
    assert EXPERIMENTS / "federations/phrasebook_send.toml" in FEDERATIONS
    assert EXPERIMENTS / "fed_mnmt/table2.toml" in SUITES
    assert BACKBONES


@pytest.mark.parametrize("path", RUNS, ids=named)
def test_every_experiment_loads_with_its_federation(path: Path) -> None:
    settings = read_experiment(path, {})
    assert read_federation(settings.federation_path, Path("data")).sites


@pytest.mark.parametrize("path", SUITES, ids=named)
def test_every_suite_loads_with_its_federations_and_quotes_the_paper_on_their_sites(path: Path) -> None:
    suite = read_suite(path, {})
    check_figures(suite, [read_federation(row.settings.federation_path, Path("data")) for row in suite.rows])


def test_no_committed_tables_clusters_are_widened() -> None:
    """Clusters of fewer than two sites stay as they were when the tables were made: their files say cluster.least = 1."""
    settings = [read_experiment(path, {}) for path in RUNS] + [
        row.settings for path in SUITES for row in read_suite(path, {}).rows
    ]
    clustered = [each for each in settings if each.how.clustering in ("families", "random", "gradients")]
    assert {each.federation_path.stem for each in clustered} >= {"bible", "tico", "ted2020_m2en", "phrasebook_trades"}
    for each in clustered:
        federation = read_federation(each.federation_path, Path("data"))
        before = replace(each, cluster_least=1)
        assert numbers_of_clusters(each, federation) == numbers_of_clusters(before, federation), each.federation
        assert planned_clusters(each, federation) == planned_clusters(before, federation), each.federation


def test_no_committed_tables_batches_are_made_otherwise() -> None:
    """Tables of before batches were of similar length say group-by-length = false."""
    results = [Result(file.parent) for file in RESULTS.rglob("suite.json")]
    assert len(results) > 40
    for result in results:
        rows = {row.name: row.settings.group_by_length for row in read_suite(suite_file(result.name), {}).rows}
        for line in result.runs.values():
            assert line["run"]["config"].get("group-by-length", False) == rows.get(line["method"], False), result.name


PAPER_TABLES = [path for path in SUITES if read_suite(path, {}).paper]


@pytest.mark.parametrize("path", PAPER_TABLES, ids=named)
def test_the_papers_figures_by_site_average_to_its_macro(path: Path) -> None:
    """Digits swapped in the copying would show. Liu et al. give two decimals, Chu et al. one, of sites and of their mean."""
    paper = read_suite(path, {}).paper
    assert paper is not None
    rounding = 0.0101 if paper.of == "fed-mnmt" else 0.101
    for name, figures in paper.rows.items():
        sites = [figure for column, figure in figures.items() if column not in ("macro", "micro")]
        if len(sites) > 1:
            assert sum(sites) / len(sites) == pytest.approx(figures["macro"], abs=rounding), name


@pytest.mark.parametrize("path", FEDERATIONS, ids=lambda path: path.stem)
def test_every_federation_loads_with_the_recipe_of_its_base(path: Path) -> None:
    federation = read_federation(path, Path("data"))
    assert federation.base is None or federation.base in BACKBONES


def papers_federation(name: str) -> tuple[Federation, dict[str, int]]:
    """(one of the paper's federations, training sentences of each site)."""
    federation = read_federation(EXPERIMENTS / f"federations/{name}.toml", Path("data"))
    return federation, {site.name: site.sizes.before(federation.rules.sizes).train for site in federation.sites}


def groups(federation: Federation, part: Part) -> list[tuple[str, ...]]:
    directions = {site.name: [site.direction] for site in federation.sites}
    return list(by_families(directions, Relatives(federation.families, "group"))[part].values())


def test_the_papers_many_to_english_federation_has_its_sizes_and_families() -> None:
    federation, train = papers_federation("ted2020_m2en")
    assert train == {
        "zh-en": 9984, "th-en": 4992, "ar-en": 9984, "he-en": 1920, "fi-en": 1920, "et-en": 1920, "ru-en": 9984, "sl-en": 1920
    }  # fmt: skip
    assert [str(site.direction) for site in federation.sites] == list(train)
    assert groups(federation, "encoder") == [("zh-en", "th-en"), ("ar-en", "he-en"), ("fi-en", "et-en"), ("ru-en", "sl-en")]
    assert groups(federation, "decoder") == [tuple(train)]


def test_the_papers_many_to_many_federation_has_its_sizes_and_groups() -> None:
    federation, train = papers_federation("europarl_m2m")
    assert list(train.items()) == [
        ("de-fr", 11648), ("nl-pl", 3584), ("en-lt", 3712), ("fr-nl", 12160), ("it-sl", 3456), ("es-lv", 3584),
        ("pl-en", 3712), ("sl-es", 3584), ("sl-lt", 3584), ("lt-de", 3328), ("lv-it", 3584), ("lv-pl", 3712),
    ]  # fmt: skip
    assert groups(federation, "encoder") == [
        ("de-fr", "nl-pl", "en-lt"), ("fr-nl", "it-sl", "es-lv"), ("pl-en", "sl-es", "sl-lt"), ("lt-de", "lv-it", "lv-pl")
    ]  # fmt: skip
    assert groups(federation, "decoder") == [
        ("de-fr", "sl-es", "lv-it"), ("nl-pl", "it-sl", "lv-pl"), ("en-lt", "es-lv", "sl-lt"), ("fr-nl", "pl-en", "lt-de")
    ]  # fmt: skip


def test_the_uniform_federation_has_the_same_sites_all_of_one_size() -> None:
    federation, train = papers_federation("ted2020_uniform")
    assert federation.site_names == papers_federation("ted2020_m2en")[0].site_names
    assert set(train.values()) == {4992}


def test_the_papers_training_sizes_are_whole_steps_and_fit_what_is_prepared() -> None:
    for name, corpus in (("ted2020_m2en", "ted2020"), ("europarl_m2m", "europarl")):
        federation, train = papers_federation(name)
        assert not [site for site, size in train.items() if size % 128]
        prepared = PAPER_CORPORA[corpus].sizes
        assert list(prepared) == [site.direction for site in federation.sites]
        for site in federation.sites:
            size = prepared[site.direction]
            assert size is None or (size.train - size.train % 128, size.dev, size.test) == dataclasses.astuple(site.sizes)


SEND = {
    "mtnt": ("mtnt_noniid", "mtnt_iid"),
    "uncorpus": ("uncorpus_noniid", "uncorpus_iid"),
    "phrasebook": ("phrasebook_send", "phrasebook_send_iid"),
}
"""MetaSend's federations: a direction a site, and the same text dealt out."""


@pytest.mark.parametrize("corpus", SEND)
def test_the_same_sites_have_the_same_text_by_direction_and_dealt_out(corpus: str) -> None:
    for low in ("", "_low"):
        plain, dealt = (papers_federation(f"{name}{low}")[0] for name in SEND[corpus])
        assert (plain.rules.split.mixed, dealt.rules.split.mixed) == (False, True)
        assert plain.sites == dealt.sites
        assert plain.rules == replace(dealt.rules, split=replace(dealt.rules.split, mixed=False))


@pytest.mark.parametrize(
    ("corpus", "full", "site"), [("mtnt", 5605, "en-ja"), ("uncorpus", 80_000, "ru-zh"), ("phrasebook", 480, "school")]
)
def test_a_fifth_of_the_training_text_is_left_at_all_sites_or_at_one(corpus: str, full: int, site: str) -> None:
    """No size at all: all of what was prepared."""
    whole, train = papers_federation(SEND[corpus][0])
    assert set(train.values()) <= {0, full}
    low, every = papers_federation(f"{SEND[corpus][0]}_low")
    one_low, one = papers_federation(f"{SEND[corpus][0].removesuffix('_noniid')}_one_low")
    assert every == dict.fromkeys(train, full // 5)
    assert one == {**train, site: full // 5}
    assert low.rules.split == one_low.rules.split == whole.rules.split


def test_metasends_federations_have_its_directions() -> None:
    assert papers_federation("mtnt_noniid")[0].site_names == ["en-fr", "en-ja"]
    assert papers_federation("uncorpus_noniid")[0].rules.directions == DIRECTIONS
    languages = [
        code for site in papers_federation("phrasebook_send")[0].sites for code in (site.direction.source, site.direction.target)
    ]
    assert len(set(languages)) == len(languages) == 8


def test_the_nine_silos_of_medical_text_are_the_papers_and_each_has_a_row_of_its_own() -> None:
    """Manoel et al. 2022, tables 1 and 3."""
    suite = read_suite(EXPERIMENTS / "medical/table3.toml", {})
    federation = read_federation(suite.rows[0].settings.federation_path, Path("data"))
    languages = ["it", "fr", "es", "pt", "en", "de", "ar", "he", "ru"]
    assert [(site.name, str(site.direction)) for site in federation.sites] == [(code, code) for code in languages]
    assert federation.base is None  # XLM-R, of whose text nothing is known here
    assert [site.corpus.paths() for site in federation.sites if isinstance(site.corpus, JsonDocuments)] == [
        [Path("data/medical") / f"{code}.jsonl.gz"] for code in languages
    ]
    assert [row.name for row in suite.rows] == ["base", "server-adam", "centralized", *(f"silo-{code}" for code in languages)]


def test_a_tenth_of_the_papers_samples_is_seen() -> None:
    """Table 1's numbers of training samples under table 3's settings; the paper says 10.4 %."""
    samples = [412_437, 477_323, 502_479, 400_175, 132_593_658, 575_559, 83_963, 34_104, 100_762]
    row = next(row.settings for row in read_suite(EXPERIMENTS / "medical/table3.toml", {}).rows if row.name == "server-adam")
    drawn = [num_samples(size, row.sample_least, row.sample_share) for size in samples]
    assert drawn == [500, 500, 500, 500, 10_607, 500, 500, 500, 500]
    assert row.rounds * sum(drawn) / sum(samples) == pytest.approx(0.1, abs=0.005)


@cache
def phrasebook_send() -> Mapping[str, SiteText]:
    return read_sites(papers_federation("phrasebook_send")[0], frozenset())


def test_the_phrasebook_for_choosing_what_to_send_has_its_sizes_and_keeps_its_splits_apart() -> None:
    texts = phrasebook_send()
    assert {tuple(len(text.splits[split]) for split in SPLITS) for text in texts.values()} == {(480, 64, 240)}
    assert not sides(texts, "train") & sides(texts, "dev", "test")
    assert not sides(texts, "dev") & sides(texts, "test")
    assert not demo_sides() & sides(texts, "dev", "test")


@pytest.mark.parametrize("name", ["phrasebook_send_low", "phrasebook_send_one_low"])
def test_with_a_fifth_of_the_phrasebook_dev_and_test_stay_what_they_were(name: str) -> None:
    """A register that grows with the sizes would give other sentences, so the files say how many."""
    for site, text in read_sites(papers_federation(name)[0], frozenset()).items():
        whole = phrasebook_send()[site]
        assert (text.splits["dev"], text.splits["test"]) == (whole.splits["dev"], whole.splits["test"])
        assert set(text.splits["train"]) <= set(whole.splits["train"])


def test_the_phrasebook_is_dealt_out_in_equal_hands_of_all_directions() -> None:
    held = held_texts(phrasebook_send(), papers_federation("phrasebook_send_iid")[0].rules.split)
    for hand in held.values():
        assert [sum(len(text.splits[split]) for text in hand.values()) for split in SPLITS] == [480, 64, 240]
        assert min(len(text.splits["train"]) for text in hand.values()) > 80


@pytest.mark.parametrize("path", BACKBONES, ids=named)
def test_every_recipe_loads(path: Path) -> None:
    assert read_recipe(path, Path("data")).corpora


ENGLISH_18 = EXPERIMENTS / "backbones/english_18.toml"


def test_the_recipe_for_a_gpu_is_of_18_languages_and_english_both_ways_and_of_its_size(tmp_path: Path) -> None:
    recipe = read_recipe(ENGLISH_18, Path("data"))
    others = {direction.source for direction in recipe.trained} - {"en"}
    assert len(others) == 18
    assert {str(one) for one in recipe.trained} == {f"{code}-en" for code in others} | {f"en-{code}" for code in others}
    assert (recipe.training.precision, recipe.training.device, recipe.training.minutes) == ("bf16", "cuda", 0)
    tokenizer = build_tokenizer(SENTENCES, ["de", "en"], 300, tmp_path)
    # As of that recipe's own text: SentencePiece gives so many pieces, of which the unknown one is a special token.
    tokenizer.encoder_size = recipe.model.vocab_size - 1 + len(SPECIAL_TOKENS)
    assert isinstance(recipe.model, ModelSize)
    with torch.device("meta"):
        model = build_model(recipe.model, tokenizer, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == 81_675_776


def test_the_recipe_for_a_gpu_trains_in_small_on_a_cpu(tmp_path: Path) -> None:
    """The same command, every corpus made up."""
    for direction, files in read_recipe(ENGLISH_18, tmp_path).corpora:
        for path in files.paths():
            assert isinstance(path, Path)
            path.parent.mkdir(exist_ok=True)
            with gzip.open(path, "wt", encoding="utf-8") as stream:
                both = isinstance(files, TsvFile)
                stream.writelines(f"{one} {direction.source}\t{one} too\n" if both else f"{one}\n" for one in SENTENCES)
    small = {
        "training.device": "cpu", "training.threads": 1, "training.steps": 4, "training.tokens-per-batch": 400,
        "model.d-model": 16, "model.heads": 2, "model.ffn-dim": 32, "model.encoder-layers": 1, "model.decoder-layers": 1,
        "model.vocab-size": 300, "watching.evaluate-every": 2, "watching.dev-sentences": 0, "base.dev": 0.1,
    }  # fmt: skip
    said = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    arguments = ["pretrain", str(ENGLISH_18), "--data", str(tmp_path), "--to", str(tmp_path / "model")]
    result = CliRunner().invoke(app, [*arguments, *said])
    assert result.exit_code == 0, result.output
    about = json.loads((tmp_path / "model" / "pretraining.json").read_text())
    assert [look["step"] for look in about["looks"]] == [2, 4]
    assert set(about["trains"]) == {str(direction) for direction in read_recipe(ENGLISH_18, tmp_path).trained}
    backbone = load_backbone(tmp_path / "model")
    backbone.codec.check(read_recipe(ENGLISH_18, tmp_path).trained)


def test_flower_alone_runs_the_sites_of_make_demo() -> None:
    """`flwr run .` takes the defaults of pyproject.toml."""
    of_flower = settings_from(flat_keys(read_toml(ROOT / "pyproject.toml")["tool"]["flwr"]["app"]["config"]))
    of_demo = read_experiment(EXPERIMENTS / "demo.toml", {})
    assert of_flower.federation_path == of_demo.federation_path
    assert "fedlingua run experiments/demo.toml" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_defaults_have_exactly_the_known_keys_and_pass() -> None:
    defaults = default_run_config()
    assert list(defaults) == list(OPTIONS)
    assert settings_from(defaults).flat() == defaults


@cache
def phrasebook() -> tuple[Federation, Mapping[str, SiteText]]:
    federation = read_federation(EXPERIMENTS / "federations/phrasebook_nine.toml", Path("data"))
    return federation, read_sites(federation, frozenset())


def test_the_phrasebook_federation_needs_no_files() -> None:
    check_corpora(phrasebook()[0].sites)


def test_the_phrasebook_federation_has_shared_clusters_on_both_sides() -> None:
    federation, _ = phrasebook()
    clusters = by_families({site.name: [site.direction] for site in federation.sites}, Relatives(federation.families, "group"))
    assert len(federation.sites) >= 8
    for part in ("encoder", "decoder"):
        assert sum(len(members) >= 2 for members in clusters[part].values()) >= 3  # type: ignore[index]


def test_every_phrasebook_site_has_text_in_every_split() -> None:
    _, texts = phrasebook()
    assert all(len(text.splits[split]) >= 50 for text in texts.values() for split in SPLITS)


@cache
def demo_sides() -> set[Side]:
    """Every sentence that the demo backbone has seen."""
    train, dev = base_register()
    return {
        side
        for text in (train, dev)
        for direction, pairs in text.items()
        for pair in pairs
        for side in ((direction.source, pair.source), (direction.target, pair.target))
    }


def test_no_dev_or_test_sentence_of_the_phrasebook_is_in_the_demo_backbones_text() -> None:
    assert len(demo_sides()) > 10_000
    assert not demo_sides() & sides(phrasebook()[1], "dev", "test")


def test_no_dev_or_test_sentence_of_the_phrasebook_trains_any_site() -> None:
    texts = phrasebook()[1]
    assert not sides(texts, "train") & sides(texts, "dev", "test")
    assert not sides(texts, "dev") & sides(texts, "test")


@cache
def tatoeba() -> tuple[frozenset[Side], Mapping[str, SiteText]]:
    """(what the backbone trains on, every site's text); without limits, so that every sentence is looked at."""
    federation = read_federation(EXPERIMENTS / "federations/tatoeba_m2en.toml", DATA)
    try:
        check_corpora(federation.sites)
    except CorpusError as error:
        pytest.skip(f"the real text is not there: {error}")
    assert federation.base is not None
    base = frozenset(forbidden_sides(read_recipe_text(federation.base, DATA)))
    return base, read_sites(replace(federation, rules=replace(federation.rules, limits=Sizes())), base)


def test_no_dev_or_test_sentence_of_the_tatoeba_federation_is_in_its_backbones_text() -> None:
    base, texts = tatoeba()
    assert len(base) > 100_000
    assert len(sides(texts, "dev", "test")) > 4_000
    assert not base & sides(texts, "train", "dev", "test")
    assert sides(texts, "base") <= base


def test_no_sentence_of_the_tatoeba_federation_stands_in_two_splits_at_any_two_sites() -> None:
    texts = tatoeba()[1]
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not sides(texts, one) & sides(texts, other)  # type: ignore[arg-type]


def test_every_pair_of_the_tatoeba_federation_is_accounted_for() -> None:
    for text in tatoeba()[1].values():
        assert text.account.read == text.account.kept + sum(text.account.dropped.values())


@cache
def real_texts(name: str, with_base: bool = False) -> Mapping[str, SiteText]:
    """Every site's text of a federation of experiments/real; with_base: without what the backbone has seen, which takes longer."""
    federation = read_federation(EXPERIMENTS / f"federations/{name}.toml", DATA)
    try:
        check_corpora(federation.sites)
    except CorpusError as error:
        pytest.skip(f"the real text is not there: {error}")
    assert federation.base is not None
    return read_sites(federation, forbidden_sides(read_recipe_text(federation.base, DATA)) if with_base else set())


def test_every_verse_is_at_one_site_at_most() -> None:
    """2 s: the backbone's text is read, to keep it out."""
    federation = read_federation(EXPERIMENTS / "federations/bible.toml", DATA)
    texts = real_texts("bible", with_base=True)
    lines = [list(site.corpus.read()) for site in federation.sites if site.corpus]
    english = (DATA / "bible_nt/all.en.txt.gz").read_bytes()
    assert [pair.target for row in zip_longest(*lines) for pair in row if pair] == gzip.decompress(english).decode().splitlines()
    assert {len(text.splits["train"]) for text in texts.values()} == {500}
    assert min(len(text.splits["dev"]) for text in texts.values()) >= 130
    assert min(len(text.splits["test"]) for text in texts.values()) >= 260
    assert not sides(texts, "train") & sides(texts, "dev", "test")
    assert not sides(texts, "dev") & sides(texts, "test")


def test_the_smaller_and_the_larger_sites_of_the_bible_have_the_same_dev_and_test() -> None:
    for names in (("bible_50", "bible_150", "bible"), ("bible_three_500", "bible_three_2000")):
        smaller, larger = (read_federation(EXPERIMENTS / f"federations/{name}.toml", DATA) for name in (names[0], names[-1]))
        assert smaller.sites == larger.sites
        assert replace(smaller.rules, sizes=Sizes()) == replace(larger.rules, sizes=Sizes())
    small, large = real_texts("bible_50"), real_texts("bible")
    assert all(set(small[site].splits["train"]) < set(large[site].splits["train"]) for site in large)


def test_medical_sites_train_and_test_on_the_same_lines() -> None:
    texts = real_texts("tico")
    for split in SPLITS:
        held = [{pair.target for pair in text.splits[split]} for text in texts.values()]
        assert len(set.union(*held)) - len(set.intersection(*held)) <= 2  # a line of one word is cleaned away in one language
    everything = sum(len(pairs) for pairs in texts["fr-en"].splits.values())
    shares = [len(texts["fr-en"].splits[split]) / everything for split in SPLITS]
    assert shares == pytest.approx([0.6, 0.15, 0.25], abs=0.03)


def test_the_page_of_what_a_server_could_read_is_made_of_its_figures() -> None:
    figures = json.loads(leak.RESULT.with_suffix(".json").read_text(encoding="utf-8"))
    assert leak.RESULT.read_text(encoding="utf-8") == leak.page(figures)
