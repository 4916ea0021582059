"""Real sockets: 16 clients at once and a pest among them, no error, the same text, no growth; and a request of 10 MB."""

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from tests.translated_runs import translator_of_site

CLIENTS, SECONDS = 16, 4.0
SENTENCES = ["Der Arzt liest.", "Guten Morgen, Nachbar.", "ja", "Hat der reiche Tourist das Buch gelesen?", "", "Der Hund."]
SITES = ["hospital", "court", "school", "bank"]


def connection(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)


def post(made: http.client.HTTPConnection, body: bytes) -> tuple[int, str, dict[str, object]]:
    made.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
    answer = made.getresponse()
    return answer.status, answer.headers.get("Retry-After", ""), json.loads(answer.read())


def test_sixteen_clients_are_answered_as_translate_answers_each_by_itself(address: str, finished_run: Path) -> None:
    wanted = {}
    for site in SITES:
        translator = translator_of_site(finished_run, site)
        wanted |= {(site, sentence): translator.translate([sentence])[0] for sentence in SENTENCES}
    seen: Counter[int] = Counter()
    wrong: list[object] = []

    def client(seed: int, ends: float) -> None:
        rng, made = random.Random(seed), connection(address)
        while time.monotonic() < ends:
            site, sentences = rng.choice(SITES), rng.sample(SENTENCES, rng.randint(1, 3))
            status, again, found = post(made, json.dumps({"site": site, "sentences": sentences}).encode())
            seen[status] += 1
            if status == 503:
                assert int(again) >= 1
            elif found.get("translations") != [wanted[site, sentence] for sentence in sentences]:
                wrong.append((site, sentences, found))

    def pest(ends: float) -> None:
        made = connection(address)
        while time.monotonic() < ends:
            for body, right in (
                (b"{", 422),
                (b'{"site": "x", "sentences": ["a"]}', 404),
                (b'{"site": "bank", "sentences": []}', 422),
            ):
                status, _, found = post(made, body)
                if status != right or "error" not in found:
                    wrong.append((body, status, found))
            time.sleep(0.05)

    def all_at_once(seconds: float) -> None:
        ends = time.monotonic() + seconds
        threads = [threading.Thread(target=client, args=(seed, ends)) for seed in range(CLIENTS)]
        threads.append(threading.Thread(target=pest, args=(ends,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()

    all_at_once(SECONDS / 4)  # fills what is kept
    process = psutil.Process(os.getpid())
    before, files, threads = process.memory_info().rss, process.num_fds(), threading.active_count()
    all_at_once(SECONDS)
    assert wrong == []
    assert set(seen) <= {200, 503}  # of eight that may wait, with sixteen that ask
    assert seen[200] > 20
    assert process.memory_info().rss - before < 16 << 20
    assert abs(process.num_fds() - files) <= CLIENTS + 2
    assert threading.active_count() == threads


def test_ten_megabytes_are_refused_and_the_next_request_is_answered(address: str) -> None:
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    for _ in range(3):
        status, _, found = post(connection(address), b'{"site": "bank", "sentences": ["' + b"x" * 10_000_000 + b'"]}')
        assert (status, "at most" in str(found["error"])) == (413, True)
    assert process.memory_info().rss - before < 40 << 20  # what this test itself sends
    assert post(connection(address), b'{"site": "bank", "sentences": ["ja"]}')[0] == 200


def test_who_leaves_before_the_answer_harms_nobody(address: str) -> None:
    for _ in range(5):
        made = connection(address)
        made.request("POST", "/v1/translate", b'{"site": "bank", "sentences": ["ja"]}', {"Content-Type": "application/json"})
        made.close()
    half = connection(address)
    half.putrequest("POST", "/v1/translate")
    half.putheader("Content-Length", "100")
    half.endheaders(b"{")
    half.close()
    assert post(connection(address), b'{"site": "bank", "sentences": ["ja"]}')[0] == 200


def test_another_name_than_its_own_is_refused(address: str) -> None:
    made = connection(address)
    made.request("GET", "/health", headers={"Host": "evil.example"})
    assert made.getresponse().status == 403


def test_a_proxy_may_ask_for_its_health_without_a_body(address: str) -> None:
    made = connection(address)
    made.request("HEAD", "/health")
    answer = made.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
