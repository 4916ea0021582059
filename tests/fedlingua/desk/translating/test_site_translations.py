"""What a site keeps of its scored text is read back as it was written, or the place of the mistake is named."""

import json
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError, RunError
from fedlingua.desk.translating.site_translations import read_files, read_site_translations, site_translations

HEADER = "source\treference\tbase\thypothesis\n"


def test_columns_become_texts(tmp_path: Path) -> None:
    own = tmp_path / "sites/north/translations.tsv"
    own.parent.mkdir(parents=True)
    own.write_text(HEADER + "s1\tr1\tb1\th1\ns2\tr2\t\th2\n")
    read = site_translations(tmp_path, "north", "de-fr")
    assert read.hypothesis.hypotheses == ["h1", "h2"]
    assert read.base.hypotheses == ["b1", ""]
    for text in (read.base, read.hypothesis):
        assert (text.sources, text.references, text.target) == (["s1", "s2"], ["r1", "r2"], "fr")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("source\treference\n", r"line 1: the header is source, reference; wanted source, reference, base, hypothesis"),
        (HEADER + "a\tb\tc\td\na\tb\tc\n", r"line 3: 3 columns; wanted 4"),
        (HEADER + "a\tb\tc\td\te\n", r"line 2: 5 columns; wanted 4"),
    ],
)
def test_another_layout_is_told_with_its_line(tmp_path: Path, content: str, words: str) -> None:
    own = tmp_path / "sites/north/translations.tsv"
    own.parent.mkdir(parents=True)
    own.write_text(content)
    with pytest.raises(CorpusError, match=words):
        site_translations(tmp_path, "north", "de-fr")


def test_three_files_have_as_many_lines(tmp_path: Path) -> None:
    for name, lines in (("s", "1\n2\n"), ("h", "a\nb\n"), ("r", "x\ny\n"), ("short", "x\n")):
        (tmp_path / name).write_text(lines)
    text = read_files([tmp_path / "s", tmp_path / "h", tmp_path / "r"], "de")
    assert (text.sources, text.hypotheses, text.references, text.target) == (["1", "2"], ["a", "b"], ["x", "y"], "de")
    with pytest.raises(CorpusError, match=r"short has 1 lines; wanted as many in each"):
        read_files([tmp_path / "s", tmp_path / "h", tmp_path / "short"], "de")


def run_folder(folder: Path, **about: object) -> Path:
    """A run's folder as far as its translations go: one site has two directions, the other is pooled in a third."""
    (folder / "run.json").write_text(json.dumps({"status": "completed", "config": {"task": "translation"}, **about}))
    sites = {name: {"direction": direction} for name, direction in (("a:de-fr", "de-fr"), ("a:de-es", "de-es"), ("b", "pl-sv"))}
    (folder / "scores.json").write_text(json.dumps({"sites": sites}))
    for file in ("a/translations-a:de-fr.tsv", "a/translations-a:de-es.tsv", "b/translations.tsv"):
        (folder / "sites" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "sites" / file).write_text(f"{HEADER}s\tr\tb\t{file}\n")
    return folder


def test_every_site_and_direction_of_a_run_is_found(tmp_path: Path) -> None:
    read = read_site_translations(run_folder(tmp_path))
    assert {name: (one.hypothesis.hypotheses[0], one.hypothesis.target) for name, one in read.items()} == {
        "a:de-fr": ("a/translations-a:de-fr.tsv", "fr"),
        "a:de-es": ("a/translations-a:de-es.tsv", "es"),
        "b": ("b/translations.tsv", "sv"),
    }
    assert list(read_site_translations(tmp_path, ["b"])) == ["b"]
    with pytest.raises(RunError, match=r"no site 'c' has scores here; there are a:de-fr, a:de-es, b"):
        read_site_translations(tmp_path, ["c"])


def test_a_run_without_translations_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        read_site_translations(tmp_path)
    run_folder(tmp_path, status="running")
    with pytest.raises(RunError, match="the run is running"):
        read_site_translations(tmp_path)
    run_folder(tmp_path, config={"task": "masked-language"})
    with pytest.raises(RunError, match="translates nothing"):
        read_site_translations(tmp_path)
    run_folder(tmp_path)
    (tmp_path / "sites" / "b" / "translations.tsv").unlink()
    with pytest.raises(RunError, match=r"translations of site b are not here; in a deployment they stay at the site"):
        read_site_translations(tmp_path)
