"""Every kind of page in a real browser: what it draws, sorts, shows on a phone, in the dark and on paper, and what it never does."""

import itertools
import json
from pathlib import Path

import pytest

from fedlingua.desk.report.publish import LIBRARY
from fedlingua.desk.report.run_page import write_report
from fedlingua_lab.comparison.compare import compare
from fedlingua_lab.comparison.runs import read_runs
from fedlingua_lab.pages.comparison_page import write_comparison
from fedlingua_lab.pages.suite_page import write_suite_report
from tests.browser import DESKTOP, PHONE, Browser
from tests.recorded import record_whole_run
from tests.translated_runs import make_run

ROOT = Path(__file__).parents[4]
EVIL = "<img src=x onerror=\"document.title='run'\">"
KINDS = ("run", "suite", "comparison")
PAPER = 680

POINTS = """
const wanted = {}, drawn = {};
const figures = JSON.parse(document.getElementById("figures").textContent);
const count = (values, others) => values.filter((value, place) => value !== null && others[place] !== null).length;
for (const [name, figure] of Object.entries(figures)) {
  const place = document.getElementById("plot-" + name);
  const shown = figure.data.filter(trace => trace.visible ?? true);
  const of = (type, asked) => shown.filter(trace => (trace.type ?? "scatter") === type && asked(trace))
    .reduce((sum, trace) => sum + count(trace.x, trace.y), 0);
  wanted[name] = {
    marks: of("scatter", trace => (trace.mode ?? "lines+markers").includes("markers")),
    bars: of("bar", () => true),
    names: (figure.layout.annotations ?? []).length,
    maps: shown.filter(trace => trace.type === "heatmap").length,
  };
  const drawings = selector => place.querySelectorAll(selector).length;
  drawn[name] = {
    marks: drawings(".scatterlayer .points path.point"),
    bars: drawings(".barlayer .points .point"),
    names: drawings(".annotation"),
    maps: drawings(".heatmaplayer image"),
  };
}
const empty = [...document.querySelectorAll(".plot")].filter(place => !place.querySelector(".point, .js-line, .heatmaplayer image"));
return [wanted, drawn, empty.map(place => place.id)];
"""

NAMES = """
const place = document.getElementById("plot-bytes") ?? document.getElementById("plot-saving");
const boxes = [...place.querySelectorAll(".annotation-text-g")].map(each => each.getBoundingClientRect());
const ground = place.querySelector(".bglayer rect, .nsewdrag").getBoundingClientRect();
const crossing = boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
  a.left < b.right - 4 && b.left < a.right - 4 && a.top < b.bottom - 4 && b.top < a.bottom - 4).map(b => [a.left, a.top, b.left, b.top]));
const outside = boxes.filter(a => a.left < ground.left - 4 || a.right > ground.right + 12).map(a => [a.left, a.right]);
return [crossing, outside, boxes.length];
"""

COLUMN = """
const [table, place] = arguments;
return [...document.querySelector(table).tBodies[0].rows].map(row => row.cells[place].textContent.trim());
"""

# The lowest contrast of a text with what lies behind it, and whose it is: WCAG 2.2, 1.4.3.
CONTRAST = """
const channels = colour => colour.match(/[\\d.]+/g).map(Number);
const light = colour => {
  const [red, green, blue] = channels(colour).slice(0, 3).map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = element => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor, [, , , alpha = 1] = channels(colour);
    if (alpha === 1) return colour;
  }
};
let least = [Infinity, ""];
for (const element of document.querySelectorAll("body *:not(script):not(noscript):not(style)")) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), svg = element.namespaceURI.endsWith("svg");
  const ink = svg ? style.fill : style.color;
  if (channels(ink)[3] === 0) continue;
  const [x, y] = [light(ink), light(behind(element))];
  const found = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  if (found < least[0]) least = [found, element.outerHTML.slice(0, 200)];
}
return least;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind; the sites' names and text of a run and of a comparison are markup."""
    folder = tmp_path_factory.mktemp("pages")
    run = record_whole_run(folder / "run", sites=7, rounds=4, tensors=20, spell=f"{EVIL} {{}}", words=EVIL)
    table = ROOT / "experiments/results/fed_mnmt/table2_phrasebook"
    spoiled = {"adapter-local": {"a": 1, "b": 0}, "adapter-fed": {"a": 0, "b": 2}, "pmfl": {"a": 2, "b": 3}}
    compared = [
        make_run(folder / method / EVIL.replace("/", ""), method, wrong, seed, mark=EVIL, name=str(seed))
        for method, wrong in spoiled.items()
        for seed in (2022,)
    ]
    comparison = compare(read_runs(compared), "", 100, 2)
    return {
        "run": write_report(run),
        "suite": write_suite_report(table, folder / "suite"),
        "comparison": write_comparison(comparison, folder / "comparison.html"),
    }


def opened(browser: Browser, page: Path, size: tuple[int, int] = DESKTOP, dark: bool = False) -> Browser:
    """With all plots drawn."""
    browser.open(page.as_uri(), size, dark)
    browser.wait("return document.documentElement.dataset.drawn")
    return browser


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_draws_every_point_without_an_error_or_a_request(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind])
    wanted, drawn, empty = browser.run(POINTS)
    assert drawn == wanted
    assert empty == []
    assert browser.console_errors() == []
    assert browser.requests() == [pages[kind].as_uri(), (pages[kind].parent / LIBRARY).as_uri()]


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_names_of_points_lie_free_of_each_other_and_within_the_plot(
    browser: Browser, pages: dict[str, Path], size: tuple[int, int]
) -> None:
    opened(browser, pages["suite"], size)
    crossing, outside, number = browser.run(NAMES)
    assert number >= 4
    assert (crossing, outside) == ([], [])


def test_a_page_without_its_library_says_what_it_needs(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "alone.html"
    page.write_bytes(pages["suite"].read_bytes())
    browser.open(page.as_uri())
    assert browser.run("return document.querySelector('.empty[id^=plot]').textContent").startswith(f"The plots need {LIBRARY}")
    assert browser.run("return document.querySelectorAll('.plot').length") == 0


def test_columns_that_say_nothing_are_hidden(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["run"])
    shown = "return [...document.querySelectorAll('#corpora table tbody td')].every(cell => cell.hidden === !cell.offsetParent)"
    assert browser.run(shown)
    silent = """return [...document.querySelectorAll(".scroll > table:not(.clusters)")].flatMap(table => {
      const rows = [...table.tBodies].flatMap(body => [...body.rows]);
      return [...rows[0]?.cells ?? []].map((_, place) => rows.map(row => row.cells[place]).filter(cell => cell?.offsetParent))
        .filter(cells => cells.length && cells.every(cell => /^[–\\s]*$/.test(cell.textContent))).map(() => table.textContent);
    })"""
    assert browser.run(silent) == []


@pytest.mark.parametrize("kind", KINDS)
def test_markup_in_names_and_text_is_shown_and_does_nothing(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind])
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.title") != "run"
    if kind != "suite":
        assert EVIL in browser.run("return document.body.textContent")


def test_a_heading_sorts_by_click_and_by_keyboard_and_totals_stay_below(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["run"])
    table, after = "#scores table", 4
    totals = browser.run("return document.querySelector('#scores table').tFoot.textContent")
    as_it_came = [float(value) for value in browser.run(COLUMN, table, after)]
    assert as_it_came == sorted(as_it_came)
    button = browser.driver.find_element("css selector", f"{table} th:nth-child({after + 1}) button")
    button.click()
    assert [float(value) for value in browser.run(COLUMN, table, after)] == as_it_came[::-1]
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    site = browser.driver.find_element("css selector", f"{table} th:first-child button")
    site.send_keys("\n")
    assert browser.run(COLUMN, table, 0) == [f"{EVIL} {number}" for number in range(1, 8)]
    assert site.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"
    assert button.find_element("xpath", "..").get_attribute("aria-sort") is None
    assert browser.run("return document.querySelector('#scores table').tFoot.textContent") == totals
    assert browser.run("return document.querySelector('#scores table').lastElementChild.tagName") == "TFOOT"


def test_a_column_sorts_by_the_numbers_with_which_its_cells_begin(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["run"])
    fill = """
    [...document.querySelector("#scores table").tBodies[0].rows].forEach((row, place) => {
      delete row.cells[4].dataset.v;
      row.cells[4].textContent = arguments[0][place];
    });
    document.querySelectorAll("#scores th button")[4].click();
    """
    browser.run(fill, ["–", "9.5 %", "+10.5 [-0.1, 12.2]", "1,200", "-3.0 [-4.0, -1.0]", "", "10.4"])
    wanted = ["1,200", "+10.5 [-0.1, 12.2]", "10.4", "9.5 %", "-3.0 [-4.0, -1.0]", "–", ""]
    assert browser.run(COLUMN, "#scores table", 4) == wanted


def test_a_table_of_many_sites_scrolls_and_rows_are_found_by_a_word(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "many.html"
    text = pages["run"].read_text(encoding="utf-8")
    assert "const WHOLE = 40;" in text
    page.write_text(text.replace("const WHOLE = 40;", "const WHOLE = 5;"), encoding="utf-8")
    opened(browser, page)
    seen = "return [...document.querySelector('#scores table').tBodies[0].rows].filter(each => !each.hidden).length"
    assert browser.run(seen) == 7
    assert browser.run("return document.querySelector('#scores .scroll').matches('.tall')")
    field = browser.driver.find_element("css selector", "#scores input")
    assert field.get_attribute("placeholder") == "find among 7 rows"
    field.send_keys(EVIL[-3:].upper() + " 3")
    assert browser.run(seen) == 1
    field.clear()
    field.send_keys("nowhere")
    assert browser.run(seen) == 0
    opened(browser, pages["run"])
    assert browser.run("return document.querySelectorAll('input[type=search]').length") == 0


def test_columns_under_a_heading_of_two_rows_sort_by_their_own_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["comparison"])
    heads = browser.run("return [...document.querySelectorAll('#scores th button')].map(each => each.textContent)")
    assert len(heads) == 2 + 2 * 4
    for place in range(len(heads)):
        browser.run("document.querySelectorAll('#scores th button')[arguments[0]].click()", place)
        values = browser.run(
            "return [...document.querySelector('#scores table').tBodies[0].rows].map(row => row.cells[arguments[0]].dataset.v)",
            place,
        )
        if place:
            numbers = [float(value) for value in values]
            assert numbers == sorted(numbers, reverse=True), heads[place]
    opened(browser, pages["suite"])
    browser.run("[...document.querySelectorAll('#cost th button')].find(each => each.textContent === 'parameters').click()")
    shown = browser.run(COLUMN, "#cost table", 1)
    assert shown[0].endswith("M")
    assert shown.index("86,592") > shown.index("1.09 M")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_a_phone(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind], PHONE)
    assert browser.overflow() == 0
    boxes = browser.run(
        "return [...document.querySelectorAll('.scroll, .plot:not(.scroll .plot)')].map(each => each.getBoundingClientRect().right)"
    )
    assert max(boxes) <= PHONE[0]


@pytest.mark.parametrize(("kind", "dark"), itertools.product(KINDS, (False, True)))
def test_all_text_can_be_read_on_its_ground(browser: Browser, pages: dict[str, Path], kind: str, dark: bool) -> None:
    opened(browser, pages[kind], dark=dark)
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    level = sum(json.loads(ground.replace("rgb(", "[").replace(")", "]"))) / 3
    assert level < 50 if dark else level > 240
    contrast, where = browser.run(CONTRAST)
    assert contrast >= 4.5, where


@pytest.mark.parametrize("kind", KINDS)
def test_paper_is_white_and_nothing_reaches_beyond_it(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind], dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("return getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    widths = browser.run(
        "return [...document.querySelectorAll('.scroll > table, .plot .main-svg')].map(each => each.getBoundingClientRect().width)"
    )
    assert max(widths) <= PAPER + 1
    assert browser.run("return [...document.querySelectorAll('details')].every(each => each.open)")
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.pdf().startswith(b"%PDF-")
    assert browser.console_errors() == []


def test_on_a_phone_what_a_site_keeps_and_gains_stands_next_to_its_name(browser: Browser, tmp_path: Path) -> None:
    run = record_whole_run(tmp_path / "run", sites=2, rounds=1, tensors=2)
    scores = json.loads((run / "scores.json").read_text())
    chosen = {
        "alone_bleu": 1.0,
        "federated_bleu": 2.0,
        "single_bleu": 2.5,
        "kept": "own",
        "gain": {"bleu": 1, "low": 0.5, "high": 2},
    }
    scores["sites"] = {
        site: about | chosen | {"reference": {"name": "alone", "bleu": 1.0}} for site, about in scores["sites"].items()
    }
    (run / "scores.json").write_text(json.dumps(scores))
    opened(browser, write_report(run), PHONE)
    row = "document.querySelector('#joined tbody tr')"
    seen = f"return [...{row}.cells].filter(each => each.getBoundingClientRect().right <= 390).map(each => each.cellIndex)"
    heads = browser.run("return [...document.querySelectorAll('#joined th')].map(each => each.textContent.trim())")
    assert {"site", "kept", "joined"} <= {heads[place] for place in browser.run(seen)}
    opened(browser, run / "report.html", (960, 900))
    assert browser.run("const box = document.querySelector('#joined .scroll'); return box.scrollWidth - box.clientWidth") == 0
