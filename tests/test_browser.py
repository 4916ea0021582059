"""The tests' own Chromium: what it hides, no test of a page would see."""

from pathlib import Path

from tests.browser import PHONE, Browser

PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><title>page</title><p id="word">hello</p>
<div style="width: 500px">wide</div><img src="https://example.org/picture.png" alt=""><script>throw new Error("on purpose")</script>"""


def test_errors_requests_and_what_is_too_wide_are_seen(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    browser.open(page.as_uri())
    assert any("on purpose" in message for message in browser.console_errors())
    assert browser.requests() == [page.as_uri(), "https://example.org/picture.png"]
    assert browser.overflow() == 0
    browser.open(page.as_uri(), PHONE, dark=True)
    assert browser.run("return document.getElementById(arguments[0]).textContent", "word") == "hello"
    assert browser.run("return [screen.width, matchMedia('(prefers-color-scheme: dark)').matches]") == [390, True]
    assert browser.overflow() > 100


def test_a_page_is_printed_and_pictured(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>page</title><p>hello")
    browser.open(page.as_uri())
    assert browser.pdf().startswith(b"%PDF-")
    assert browser.png().startswith(b"\x89PNG")
    assert browser.console_errors() == []
