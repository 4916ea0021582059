"""How large the page of a run is without its plot library, and how soon it is drawn: 12 sites and 25 rounds, headless Chromium.

    PYTHONPATH=. python benchmarks/report_page.py [--repeats 5] [--to experiments/results/benchmarks/kept.jsonl:report_page]

The run is recorded, with numbers as many as a run's, and has every part that a page can have: what was sent, deviations, clusters with
their tree, three translations of each site and round. Each time a Chromium of its own opens the page from disk, at the size of a
desktop's window and of a phone's. Seconds are the page's own clock, from the start of its loading to the first words on the screen, to
the last plot in view and to the last of all. Where other work shares the cores, the clock counts that too, so the load and the core's own
seconds of the page's main thread are told beside it. Needs Debian's chromium and chromium-driver, and half a minute.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kept import keep

from fedlingua.desk.report.run_page import write_report
from tests.browser import DESKTOP, PHONE, Browser, opened_browser
from tests.recorded import record_whole_run

SITES, ROUNDS = 12, 25
WANTED_S, WANTED_MB = 1.0, 0.6
CLOCK = """const paint = performance.getEntriesByName("first-contentful-paint")[0];
const {drawn, inView} = document.documentElement.dataset;
return {first_words: paint ? paint.startTime : null, plots_in_view: Number(inView), last_plot: Number(drawn)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedlingua-page-") as folder:
        run = record_whole_run(Path(folder) / "run", SITES, ROUNDS)
        started = time.perf_counter()
        page = write_report(run)
        written_s = time.perf_counter() - started
        opened: dict[str, Any] = {}
        for window, size in (("desktop", DESKTOP), ("phone", PHONE)):
            times = [opening(page, size) for _ in range(given.repeats)]
            opened[window] = {name: spread([each[name] for each in times]) for name in times[0]}
        with opened_browser() as browser:
            seen(browser, page, DESKTOP)
            chromium = browser.driver.capabilities["browserVersion"]
            plots = browser.run("return document.querySelectorAll('.plot .main-svg:first-child').length")
        result = {
            "sites": SITES,
            "rounds": ROUNDS,
            "plots": plots,
            "page_mb": round(page.stat().st_size / 1e6, 3),
            "wanted_mb": WANTED_MB,
            "written_s": round(written_s, 2),
            "opened_s": opened,
            "wanted_s": WANTED_S,
            "repeats": given.repeats,
            "load": round(os.getloadavg()[0], 1),
            "chromium": chromium,
        }
    keep(result, given.to, "plotly", "selenium")


def opening(page: Path, size: tuple[int, int]) -> dict[str, float]:
    """Seconds to the first words and to the last plot, and those of the main thread, in a Chromium that has opened no page before."""
    with opened_browser() as browser:
        browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        told = {name: value / 1000 for name, value in seen(browser, page, size).items()}
        metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {**told, "core": next(each["value"] for each in metrics if each["name"] == "ThreadTime")}


def seen(browser: Browser, page: Path, size: tuple[int, int]) -> dict[str, float]:
    """Milliseconds, once all is drawn."""
    browser.open(page.as_uri(), size)
    browser.wait("return document.documentElement.dataset.drawn")
    told: dict[str, float] = browser.run(CLOCK)
    return told


def spread(values: list[float]) -> dict[str, float]:
    """In seconds."""
    return {
        "median": round(statistics.median(values), 2),
        "least": round(min(values), 2),
        "greatest": round(max(values), 2),
    }


if __name__ == "__main__":
    main()
