"""The page to type in, in a real browser: what is typed is translated, and who answers is told."""

import http.client
import json
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fedlingua.common.languages import Direction
from fedlingua.desk.serving.pages import translation_page
from tests.browser import DESKTOP, PHONE, Browser
from tests.translated_runs import translator_of_direction, translator_of_site

TYPED = "Der Arzt liest.\n\nGuten Morgen <b>& ja</b>"


def shown(browser: Browser, part: str) -> str:
    return str(browser.run("return document.getElementById(arguments[0]).textContent", part))


def opened(browser: Browser, address: str, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
    browser.open(f"{address}/", size, dark)
    waited(browser, "return document.body.dataset.ready === 'yes'")


def waited(browser: Browser, script: str) -> None:
    ends = time.monotonic() + 20
    while not browser.run(script):
        assert time.monotonic() < ends, script
        time.sleep(0.05)


def chosen(browser: Browser, part: str, value: str) -> None:
    script = "const it = document.getElementById(arguments[0]); it.value = arguments[1]; it.dispatchEvent(new Event('change'))"
    browser.run(script, part, value)


def answered(browser: Browser) -> None:
    waited(browser, "return document.getElementById('answered').textContent !== ''")


def test_a_sentence_typed_is_translated_with_the_name_of_the_model(browser: Browser, address: str, finished_run: Path) -> None:
    opened(browser, address)
    assert shown(browser, "who") == "The model of site hospital will answer."
    text = browser.driver.find_element("id", "text")
    text.send_keys(TYPED)
    assert shown(browser, "count") == "3 lines"
    browser.driver.find_element("id", "go").click()
    answered(browser)
    lines = TYPED.split("\n")
    wanted = [translator_of_site(finished_run, "hospital").translate([line])[0] for line in lines]
    assert shown(browser, "translation") == "\n".join(wanted)
    assert shown(browser, "answered").startswith("site hospital · ")
    assert browser.run("const it = document.getElementById('translation'); return [it.lang, it.dir]") == ["fr", "ltr"]
    assert browser.console_errors() == []
    assert browser.requests() == [f"{address}/{path}" for path in ("", "v1/models", "v1/translate")]


def test_a_direction_that_no_site_holds_names_its_clusters_and_keys_alone_do(
    browser: Browser, address: str, finished_run: Path
) -> None:
    opened(browser, address, PHONE, dark=True)
    chosen(browser, "source", "cs")
    chosen(browser, "target", "es")
    assert browser.run("return document.getElementById('site').value") == ""
    told = "The nearest clusters will answer. encoder: Slavic (school, bank); decoder: Romance (hospital, court)"
    assert shown(browser, "who") == told
    text = browser.driver.find_element("id", "text")
    text.send_keys("Ano")
    text.send_keys("\ue009\ue007")  # Control and Enter
    answered(browser)
    assert shown(browser, "translation") == translator_of_direction(finished_run, Direction("cs", "es")).translate(["Ano"])[0]
    assert shown(browser, "answered").startswith("encoder cluster Slavic, decoder cluster Romance · ")
    assert browser.overflow() == 0
    assert browser.console_errors() == []


def test_right_to_left_text_stands_so_on_either_side(browser: Browser, address: str) -> None:
    opened(browser, address)
    chosen(browser, "source", "yi")
    assert browser.run("const it = document.getElementById('text'); return [it.lang, it.dir]") == ["yi", "rtl"]
    chosen(browser, "target", "yi")
    assert browser.run("return document.getElementById('translation').dir") == "rtl"
    chosen(browser, "site", "bank")
    assert browser.run("return [source.value, target.value, text.dir].join(' ')") == "cs de ltr"


def test_a_translation_goes_when_its_site_or_language_does(browser: Browser, address: str) -> None:
    opened(browser, address)
    for part, value in (("site", "bank"), ("target", "yi")):
        browser.run("translation.textContent = 'Ja'; answered.textContent = 'hospital · 1 s'")
        chosen(browser, part, value)
        assert shown(browser, "translation") + shown(browser, "answered") == ""
    browser.run("text.value = 'Ano'; document.getElementById('swap').click()")
    assert browser.run("return text.value") == "Ano"


def test_a_mistake_is_shown_in_words_and_the_page_goes_on(browser: Browser, address: str) -> None:
    opened(browser, address)
    browser.driver.find_element("id", "text").send_keys("viel " * 60)
    browser.driver.find_element("id", "go").click()
    waited(browser, "return !document.getElementById('error').hidden")
    assert "sentence 1 has 300 characters; wanted at most 200" in shown(browser, "error")
    browser.run("document.getElementById('text').value = 'ja'; document.getElementById('go').click()")
    answered(browser)
    assert browser.run("return document.getElementById('error').hidden")


def test_the_interface_as_a_page_loads_nothing_else(browser: Browser, address: str) -> None:
    browser.open(f"{address}/docs")
    assert "POST" in browser.run("return document.body.textContent")
    assert browser.requests() == [f"{address}/docs"]
    assert browser.console_errors() == []


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"onload="x', "{{ 7 * 7 }}", "{{ script }}"])
def test_a_runs_name_is_text_and_nothing_else(name: str) -> None:
    page = bytes(translation_page(name).body).decode()
    assert page.count("<script>") == 1
    assert page.partition("<main>")[2].split()[0] == "<noscript>"
    assert "49" not in page.partition("<style>")[0]
    assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;") in page


def test_the_page_comes_without_a_browser_with_its_policy(address: str) -> None:
    made = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    made.request("GET", "/")
    answer = made.getresponse()
    policy, page = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "script-src 'sha256-" in policy
    assert "connect-src 'self'" in policy
    assert "http://" not in page
    assert "https://" not in page
    made.request("GET", "/v1/models")
    assert json.loads(made.getresponse().read())["sites"]
