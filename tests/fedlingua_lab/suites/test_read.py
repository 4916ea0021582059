"""Suite files: what they say, and all that is refused of them."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.settings.experiment import default_run_config
from fedlingua_lab.suites.read import Suite, is_suite, read_suite, variants
from tests.recorded import SUITE

PAPERS = """
seeds = [1]
[settings]
federation = "experiments/federations/europarl_m2m.toml"
backbone = "facebook/mbart-large-50-many-to-many-mmt"
keep.choose = false
robust.max-share = 1.0
robust.max-ratio = 0.0
send.code = "none"
rounds = 5
batch-size = 8
accumulation = 16
group-by-length = false
learning-rate = 0.0
adapter.dim = 64
max-tokens = 256
max-decode-tokens = 256
[[row]]
method = "adapter-fed"
[paper]
table = "table 2"
[paper.rows.adapter-fed]
de-fr = 29.75
macro = 23
"""


def read(tmp_path: Path, text: str, **overrides: str | int) -> Suite:
    file = tmp_path / "table2.toml"
    file.write_text(text)
    return read_suite(file, overrides)


def test_a_row_is_the_defaults_then_the_suites_keys_then_its_own(tmp_path: Path) -> None:
    suite = read(tmp_path, SUITE)
    assert [row.name for row in suite.rows] == ["base", "adapter-fed", "adapter-fed+fedavg"]
    last = suite.rows[-1].settings
    assert (last.method, last.aggregation, last.rounds, last.seed) == ("adapter-fed", "fed-avg", 2, 1)
    assert last.adapter_dim == default_run_config()["adapter.dim"]


def test_what_trains_nothing_takes_the_first_seed_alone(tmp_path: Path) -> None:
    suite = read(tmp_path, SUITE)
    assert [row.seeds for row in suite.rows] == [(1,), (1, 2), (1, 2)]


def test_a_row_may_take_fewer_of_the_suites_seeds(tmp_path: Path) -> None:
    fewer = SUITE.replace('method = "adapter-fed"\n', 'method = "adapter-fed"\nseeds = [2]\n', 1)
    suite = read(tmp_path, fewer)
    assert [row.seeds for row in suite.rows] == [(1,), (2,), (1, 2)]
    assert "seeds" not in suite.rows[1].keys
    with pytest.raises(ConfigError, match=r"row adapter-fed: seeds = \[3\]; wanted some of the suite's, which are \[1, 2\]"):
        read(tmp_path, fewer.replace("[2]\n", "[3]\n"))


def test_an_override_goes_before_the_suites_settings(tmp_path: Path) -> None:
    suite = read(tmp_path, SUITE, rounds=1)
    assert [row.settings.rounds for row in suite.rows] == [1, 1, 1]


def test_an_experiment_file_is_no_suite(tmp_path: Path) -> None:
    assert not is_suite({"method": "base"})
    with pytest.raises(ConfigError, match="`fedlingua run` runs an experiment file"):
        read(tmp_path, 'method = "base"\n')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = [1, 2]", "", r"seeds = None; wanted a list"),
        ("seeds = [1, 2]", "seeds = []", r"seeds = \[\]"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "different whole numbers"),
        ("seeds = [1, 2]", "seeds = [1, true]", "different whole numbers"),
        ("seeds = [1, 2]", "seeds = [-1]", "different whole numbers"),
        ("seeds =", "sedes =", "did you mean 'seeds'"),
        ("rounds = 2", "ruonds = 2", "row base: ruonds = 2: there is no such key; did you mean 'rounds'"),
        ("rounds = 2", "rounds = 'two'", "row base: rounds = 'two' is of type str; wanted int"),
        ("rounds = 2", "seed = 3", r"\[settings\]: seed may not be given here; the suite's `seeds` list them"),
        ("rounds = 2", "data-dir = '/x'", "give it with --data"),
        ('"fed-avg"', '"fedavg"', "row adapter-fed.fedavg: aggregation = 'fedavg' is not known; did you mean 'fed-avg'"),
        ('name = "adapter-fed+fedavg"', "", "two rows have the name 'adapter-fed'"),
        ("adapter-fed+fedavg", "a/b", "name = 'a/b'; wanted letters"),
        ('method = "base"', "", "row 1: method is missing"),
    ],
)
def test_a_wrong_suite_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in SUITE
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, SUITE.replace(old, new))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", 3, "--set: seed may not be given here"),
        ("aggregation", "fed-mean", "--set aggregation: row adapter-fed.fedavg .* sets it itself"),
        ("method", "base", "--set method: row base"),
        ("ruonds", 3, "did you mean 'rounds'"),
    ],
)
def test_an_override_that_would_mix_rows_up_is_refused(tmp_path: Path, key: str, value: str | int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, SUITE, **{key: value})


def test_the_papers_figures_stand_beside_the_papers_setting(tmp_path: Path) -> None:
    suite = read(tmp_path, PAPERS)
    assert suite.shown_paper is not None
    assert suite.shown_paper.table == "table 2"
    assert suite.shown_paper.rows == {"adapter-fed": {"de-fr": 29.75, "macro": 23.0}}


def test_an_override_hides_the_papers_figures(tmp_path: Path) -> None:
    suite = read(tmp_path, PAPERS, rounds=1)
    assert suite.paper is not None
    assert suite.shown_paper is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 5", "rounds = 6", "row adapter-fed has rounds = 6 and the paper 5"),
        ('method = "adapter-fed"', 'method = "adapter-fed"\nbeam = 2', "beam = 2 and the paper 5"),
        ("rows.adapter-fed", "rows.adapter-fad", "rows: adapter-fad = .* there is no such key; did you mean 'adapter-fed'"),
        ("29.75", "129.75", "de-fr = 129.75; wanted BLEU"),
        ('table = "table 2"', "", "wanted which table"),
        ("table =", "tabel =", "did you mean 'table'"),
    ],
)
def test_the_papers_figures_are_refused_elsewhere(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in PAPERS
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, PAPERS.replace(old, new))


# --- Variants ----------------------------------------------------------------------------------------------------------------------

VARIED = """
seeds = [1, 2]
[settings]
rounds = 3
beam = 2
[[row]]
method = "base"
[[row]]
method = "adapter-fed"
[variant.short]
title = "Short"
seeds = [1]
settings.rounds = 1
[variant.alone]
title = "Alone"
[[variant.alone.row]]
method = "adapter-local"
"""


def test_a_variant_stands_in_the_place_of_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "table.toml"
    file.write_text(VARIED)
    short, alone = (read_suite(Path(f"{file}:{name}"), {}) for name in ("short", "alone"))
    assert (short.name, short.title, short.seeds, short.settings) == ("table_short", "Short", (1,), {"rounds": 1, "beam": 2})
    assert [row.name for row in short.rows] == ["base", "adapter-fed"]
    assert (alone.name, alone.seeds, alone.settings) == ("table_alone", (1, 2), {"rounds": 3, "beam": 2})
    assert [row.name for row in alone.rows] == ["adapter-local"]
    assert variants(file) == ["short", "alone"]


def test_a_file_with_a_title_is_a_suite_without_its_variants_too(tmp_path: Path) -> None:
    file = tmp_path / "table.toml"
    file.write_text(f'title = "Long"\n{VARIED}')
    assert (read_suite(file, {}).name, read_suite(file, {}).settings["rounds"]) == ("table", 3)
    assert variants(file) == ["", "short", "alone"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("table.toml", r"table\.toml has only variants; give one of them, table\.toml:short, alone"),
        ("table.toml:shrt", r"no such variant; did you mean 'short'\?.*variants: short, alone"),
        ("table.toml:odd", r"\[variant\.odd\].*sedes"),
    ],
)
def test_what_is_wrong_with_a_variant_is_told(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "table.toml").write_text(VARIED + "[variant.odd]\nsedes = [1]\n" * name.endswith("odd"))
    with pytest.raises(ConfigError, match=told):
        read_suite(tmp_path / name, {})
