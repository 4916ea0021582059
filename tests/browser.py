"""A headless Chromium for tests: pages that the project writes or serves, opened as a reader opens them.

Debian's `chromium` and `chromium-driver`, driven by selenium. Nothing leaves the machine: no name but localhost resolves.
"""

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

DESKTOP, PHONE = (1280, 900), (390, 844)
"""Width and height of the window, in CSS pixels."""
MISSING = "no {}: what a page does is not tested here; apt-get install chromium chromium-driver, pip install -e '.[dev]'"
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root in a container cannot make one; the pages are the project's own
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)


class Browser:
    """One window. `driver` is selenium's, for what is not here."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Load a page anew, in a window of that size and a reader's light or dark scheme; returns once its scripts have run."""
        self.driver.get("about:blank")
        for log in ("browser", "performance"):  # what was logged before is read away
            self.driver.get_log(log)
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        self.driver.get(url)
        # On a busy machine that can return while the window still shows the blank page.
        self.wait("return location.href !== 'about:blank' && document.readyState === 'complete'")

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns in the page; `arguments[0]`, ... are the arguments."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, timeout_s: float = 60.0) -> Any:
        """What `run` returns, once that is true.

        Raises:
            TimeoutError: it never was.
        """
        end = time.monotonic() + timeout_s
        while not (found := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"not true after {timeout_s:g} s: {script}")
            time.sleep(0.02)
        return found

    def console_errors(self) -> list[str]:
        """What was logged as an error since this was last asked or the page was opened: exceptions, what its policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """URLs asked for since this was last asked or the page was opened: the page's own among them, and not data: and blob:."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]

    def overflow(self) -> int:
        """CSS pixels by which the page is wider than its window."""
        return int(self.run("const page = document.documentElement; return page.scrollWidth - page.clientWidth"))

    def pdf(self) -> bytes:
        """The page as printed on A4.

        Chromium prints in a process of its own, which on a busy machine can fail to start; so it is asked up to three times.
        """
        from selenium.common.exceptions import WebDriverException

        for _ in range(2):
            with suppress(WebDriverException):
                return base64.b64decode(self.driver.print_page())
            time.sleep(2)
        return base64.b64decode(self.driver.print_page())

    def png(self) -> bytes:
        """The whole page as a picture, to look at."""
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(picture["data"])


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A Chromium that ends with the block; skips the test where there is none, or no selenium."""
    selenium = pytest.importorskip("selenium.webdriver", reason=MISSING.format("selenium"))
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(MISSING.format("chromedriver" if chromium else "Chromium"))
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.ignore_local_proxy_environment_variables()
    window = selenium.Chrome(options=options, service=selenium.ChromeService(executable_path=driver))
    try:
        window.set_page_load_timeout(60)
        window.set_script_timeout(60)
        yield Browser(window)
    finally:
        window.quit()
