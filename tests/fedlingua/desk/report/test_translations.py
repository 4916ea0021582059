"""Translations by round: what is read of the sites' files, and what the page says, in any script and with odd content."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report.keep import keep_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.translations import (
    Sentence,
    Text,
    changes,
    read_translations,
    shown_lines,
    shown_rounds,
)
from tests.in_process import run

EVIL = "<script>alert(1)</script>"


def line(index: int, translation: str, text: str = "north", sentence: int = 1, **more: Any) -> dict[str, Any]:
    about = {"round": index, "text": text, "direction": "de-fr", "sentence": sentence}
    return {**about, "source": f"Satz {sentence}", "reference": f"phrase {sentence}", "translation": translation, **more}


def write(folder: Path, site: str, *lines: dict[str, Any]) -> Path:
    """A file for each round of these lines."""
    target = folder / "sites" / site / "translations-by-round"
    target.mkdir(parents=True, exist_ok=True)
    for index in {each["round"] for each in lines}:
        told = [json.dumps(each, ensure_ascii=False) for each in lines if each["round"] == index]
        (target / f"{index:04d}.jsonl").write_text("\n".join(told) + "\n", encoding="utf-8")
    return target


def run_json(folder: Path, asked: int = 2, **more: Any) -> Path:
    content = {"method": "adapter-fed", "status": "completed", "config": {"keep-translations": asked}, **more}
    (folder / "run.json").write_text(json.dumps(content))
    return folder


def section(folder: Path) -> str:
    _, here, rest = write_report(folder).read_text(encoding="utf-8").partition('<section id="translations">')
    return " ".join(rest.split("</section>")[0].split()) if here else ""


def test_sentences_are_read_over_all_rounds_in_the_order_of_the_sites(tmp_path: Path) -> None:
    write(tmp_path, "north", line(10, "c"), line(0, "a"), line(0, "b", sentence=2), line(2, "x", sentence=2))
    write(tmp_path, "pooled", line(0, "d", "west"), line(0, "e", "east"))
    texts = read_translations(tmp_path, ["south", "pooled", "north"])[0]
    assert texts == [
        Text("pooled", "west", "de-fr", [Sentence("Satz 1", "phrase 1", {0: "d"})]),
        Text("pooled", "east", "de-fr", [Sentence("Satz 1", "phrase 1", {0: "e"})]),
        Text(
            "north",
            "north",
            "de-fr",
            [Sentence("Satz 1", "phrase 1", {0: "a", 10: "c"}), Sentence("Satz 2", "phrase 2", {0: "b", 2: "x"})],
        ),
    ]
    assert texts[2].rounds == [0, 2, 10]


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        (b"", 0),
        (b'{"round": 1, "sen', 1),
        (b'{"round": "one", "sentence": 1}\n{"round": 1}\n[1]\n', 3),
        (b'{"round": 1, "sentence": 1, "source": "\xff"}\n', 1),
    ],
)
def test_lines_that_cannot_be_read_are_counted_and_left_out(tmp_path: Path, content: bytes, lost: int) -> None:
    (write(run_json(tmp_path), "north", line(0, "bonjour")) / "0001.jsonl").write_bytes(content)
    texts, note = read_translations(tmp_path)
    assert [text.rounds for text in texts] == [[0]]
    told = f"{lost} line(s) of kept translations cannot be read"
    assert (told in note) == (told in section(tmp_path)) == (lost > 0)
    assert "bonjour" in section(tmp_path)


def test_the_page_shows_each_sites_sentences_round_by_round_with_what_is_new_marked(tmp_path: Path) -> None:
    run_json(tmp_path, best_round=1)
    write(tmp_path, "north", line(0, "le chat dort"), line(1, "le chien dort"), line(2, "le chien dort"))
    write(tmp_path, "south", line(0, "la nuit", "south"))
    shown = section(tmp_path)
    assert shown.index("north de-fr") < shown.index("Satz 1") < shown.index("phrase 1") < shown.index("south de-fr")
    assert '<td class="wrap" lang="de" dir="ltr">Satz 1</td>' in shown
    rounds = re.findall(r"round (\d)(.*?)</th> <td[^>]*>(.*?)</td>", shown)
    assert [(index, "★" in star, said) for index, star, said in rounds] == [
        ("0", False, "le chat dort"),
        ("1", True, "le <mark>chien</mark> dort"),
        ("2", False, "le chien dort"),
        ("0", False, "la nuit"),
    ]
    assert shown.count("<details open>") == 1


def test_a_site_that_chose_its_own_round_has_the_star_there(tmp_path: Path) -> None:
    run_json(tmp_path, best_round={"pooled": 1, "north": 0})
    write(tmp_path, "pooled", line(0, "a"), line(1, "b"))
    assert re.findall(r"round (\d) <span title=\"best round\">★", section(tmp_path)) == ["1"]


def test_scripts_from_right_to_left_and_without_spaces_say_so(tmp_path: Path) -> None:
    run_json(tmp_path)
    write(tmp_path, "a", line(0, "شجرة", direction="en-ar"), line(1, "شجرة كبيرة", direction="en-ar"))
    write(tmp_path, "b", line(0, "病人在家", direction="he-zh"), line(1, "病人在花园", direction="he-zh"))
    shown = section(tmp_path)
    assert '<td class="wrap" lang="en" dir="ltr">Satz 1</td>' in shown
    assert '<td class="wrap" lang="ar" dir="rtl">phrase 1</td>' in shown
    assert '<td class="wrap" lang="ar" dir="rtl">شجرة <mark>كبيرة</mark></td>' in shown
    assert '<td class="wrap" lang="he" dir="rtl">Satz 1</td>' in shown
    assert '<td class="wrap" lang="zh" dir="ltr">病人在<mark>花园</mark></td>' in shown


def test_markup_in_sentences_and_names_is_escaped(tmp_path: Path) -> None:
    run_json(tmp_path)
    evil = line(0, EVIL, EVIL, direction='de-fr" onload="x', source=EVIL, reference=EVIL)
    write(tmp_path, "<b>north", evil, {**evil, "round": 1, "translation": f"{EVIL} again"})
    shown = section(tmp_path)
    assert EVIL not in shown
    assert 'onload="x' not in shown
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5
    assert "&lt;script&gt;alert(1)&lt;/script&gt; <mark>again</mark>" in shown


def test_of_many_sentences_the_first_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    run_json(tmp_path)
    write(tmp_path, "north", *(line(0, f"t{number}", sentence=number) for number in range(1, 9)))
    shown = section(tmp_path)
    assert "Satz 5" in shown
    assert "Satz 6" not in shown
    assert "3 more in sites/north/translations-by-round/." in shown


def test_a_run_that_keeps_none_has_no_section_and_one_whose_sites_are_elsewhere_says_so(tmp_path: Path) -> None:
    assert section(run_json(tmp_path, asked=0)) == ""
    assert "None in this run folder; each site stores its own." in section(run_json(tmp_path))
    assert read_translations(tmp_path) == ([], "")


def test_the_files_worth_committing_hold_no_sentence(tmp_path: Path) -> None:
    run_json(tmp_path, seed=1, rounds=1, best_round=1, seconds=1.0, config_hash="x", versions={})
    (tmp_path / "scores.json").write_text("{}")
    write(tmp_path, "north", line(0, "zanzibar", source="zanzibar"))
    keep_run(tmp_path, tmp_path / "kept")
    assert not [file for file in (tmp_path / "kept").rglob("*") if file.is_file() and b"zanzibar" in file.read_bytes()]


def test_a_real_run_is_shown(four_sites: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**four_sites, "method": "adapter-fed", "rounds": 1, "keep-translations": 2}, tmp_path / "run")
    shown = section(folder.directory)
    assert re.findall(r"<summary>(.*?)</summary>", shown) == ["hospital de-fr", "court nl-es", "school pl-sv", "bank cs-de"]
    assert shown.count(">source</th>") == 4 * 2
    assert shown.count("round 0</th>") == 4 * 2
    assert shown.count("★") == 4 * 2  # round 1 of every sentence


# --- What is shown of a sentence's rounds, by sentences short enough to compare by hand ---------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "best", "shown"),
    [
        ([], None, []),
        ([0], 0, [0]),
        ([0, 1, 2, 3, 4], 2, [0, 1, 2, 3, 4]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], None, [0, 2, 4, 6, 8]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 7, [0, 2, 4, 6, 7, 8]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 99, [0, 2, 4, 6, 8]),
        ([0, 3, 4, 7, 9, 20], 0, [0, 3, 4, 7, 20]),
    ],
)
def test_first_last_some_evenly_between_and_the_best_round_are_shown(
    rounds: list[int], best: int | None, shown: list[int]
) -> None:
    assert shown_rounds(rounds, best) == shown


@pytest.mark.parametrize(
    ("before", "now", "pieces"),
    [
        ("the cat sat", "the cat sat", [("the cat sat", False)]),
        ("the cat sat", "the dog sat", [("the", False), ("dog", True), ("sat", False)]),
        ("the cat sat", "the old cat sat down", [("the", False), ("old", True), ("cat sat", False), ("down", True)]),
        ("the cat sat", "the cat", [("the cat", False)]),
        ("", "a  new\tone", [("a new one", True)]),
        ("all gone", "", []),
        ("The cat", "the cat", [("the", True), ("cat", False)]),
    ],
)
def test_words_that_the_round_before_had_not_are_marked(before: str, now: str, pieces: list[tuple[str, bool]]) -> None:
    assert changes(before, now, " ") == pieces


def test_without_spaces_characters_are_compared_with_the_marks_that_belong_to_them() -> None:
    assert changes("病人在家", "病人在花园", "") == [("病人在", False), ("花园", True)]
    # NO NU, then the vowel sign and the tone that are written over it: one unit, told from the bare letter.
    assert changes("น", "นี้", "") == [("นี้", True)]
    assert changes("a b", "a c", "") == [("a ", False), ("c", True)]


def test_each_shown_round_is_compared_with_the_one_above_it_and_the_first_with_none() -> None:
    sentence = Sentence("s", "r", {0: "a b", 1: "x x", 2: "a b", 3: "a c", 4: "a c", 5: "d", 9: "d e"})
    text = Text("court", "court", "de-fr", [sentence])
    lines = shown_lines(text, sentence, best=3)
    assert lines == {
        0: [("a b", False)],
        1: [("x x", True)],
        3: [("a c", True)],
        4: [("a c", False)],
        9: [("d e", True)],
    }
    assert text.between == " "


def test_a_sentence_that_lacks_a_shown_round_goes_without_it() -> None:
    late = Sentence("s", "r", {2: "在家", 3: "在花园"})
    text = Text("court", "court", "de-zh", [Sentence("s", "r", dict.fromkeys(range(4), "x")), late])
    lines = shown_lines(text, late, best=None)
    assert lines == {2: [("在家", False)], 3: [("在", False), ("花园", True)]}
    assert text.between == ""
