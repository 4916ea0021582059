"""Translations by round: what is read of the sites' files, and what the page says, in any script and with odd content."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report import keep_run, write_report
from fedlingua.desk.report.translations import Sentence, Text, Translations, read_translations
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
    texts = read_translations(tmp_path, True, ["south", "pooled", "north"]).texts
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
    assert (texts[2].source, texts[2].target, texts[2].rounds) == ("de", "fr", [0, 2, 10])


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
    found = read_translations(tmp_path, True)
    assert [text.rounds for text in found.texts] == [[0]]
    told = f"{lost} line(s) of kept translations cannot be read"
    assert (told in found.note) == (told in section(tmp_path)) == (lost > 0)
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
    assert "None in this run folder: each site keeps its own." in section(run_json(tmp_path))
    assert read_translations(tmp_path, False) == Translations(False)


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
