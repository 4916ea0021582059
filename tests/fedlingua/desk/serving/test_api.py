"""The endpoints: the same text as `fedlingua translate`, who answers, and every mistake answered with what is wanted."""

import json
import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlingua.common.languages import Direction
from fedlingua.desk.serving import api
from fedlingua.desk.serving.batching import Batcher
from fedlingua.desk.serving.guard import Guard
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels
from tests.in_process import run
from tests.translated_runs import translator_of_direction, translator_of_site

SENTENCES = ["Der Arzt liest.", "\u200b", "Guten\u2028Morgen & <b>ja</b>", "日本 🙂"]


def asked(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/translate", json=body)


@pytest.mark.parametrize("site", ["hospital", "court", "school", "bank"])
def test_a_site_answers_as_translate_does(client: TestClient, finished_run: Path, site: str) -> None:
    translator = translator_of_site(finished_run, site)
    answer = asked(client, site=site, sentences=SENTENCES)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["translations"] == [translator.translate([sentence])[0] for sentence in SENTENCES]
    told = {"source": translator.direction.source, "target": translator.direction.target, "site": site, "clusters": {}}
    assert found["answered_by"] == {**told, "told": f"site {site}"}
    assert found["seconds"] > 0


def test_sites_do_not_sound_alike(client: TestClient) -> None:
    """Else an answer of the wrong site would be told from no other."""
    found = {
        tuple(asked(client, site=site, sentences=SENTENCES[:1]).json()["translations"]) for site in ("hospital", "court", "bank")
    }
    assert len(found) == 3


def test_a_direction_that_no_site_holds_is_answered_by_the_nearest_clusters(client: TestClient, finished_run: Path) -> None:
    found = asked(client, source="cs", target="fr", sentences=SENTENCES).json()
    assert found["translations"] == translator_of_direction(finished_run, Direction("cs", "fr")).translate(SENTENCES)
    assert found["answered_by"]["clusters"] == {"encoder": "Slavic", "decoder": "Romance"} | (
        {"shared": "all"} if "shared" in found["answered_by"]["clusters"] else {}
    )
    assert found["answered_by"]["told"] == "encoder cluster Slavic, decoder cluster Romance"
    assert found["answered_by"]["site"] is None


def test_directions_in_memory_are_bounded(models: Models) -> None:
    assert models.of_direction.cache_info().maxsize == 4096


def test_the_list_says_who_answers_what(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert [(one["site"], one["source"], one["target"]) for one in listed["sites"]] == [
        ("hospital", "de", "fr"),
        ("court", "nl", "es"),
        ("school", "pl", "sv"),
        ("bank", "cs", "de"),
    ]
    told = {(one["source"], one["target"]): one["told"] for one in listed["directions"]}
    assert told["sl", "it"] == "encoder cluster Slavic, decoder cluster Romance"
    # No site translates from a Romance language, or into a Slavic one.
    assert not [pair for pair in told if pair[0] in {"fr", "es", "it"} or pair[1] in {"pl", "cs", "sl"}]
    assert listed["clusters"]["encoder"] == {"Germanic": ["hospital", "court"], "Slavic": ["school", "bank"]}
    assert listed["languages"]["yi"] == {"name": "Yiddish", "written": "rtl"}
    assert listed["why_no_direction"] == ""


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"sentences": ["a"]}, 422, "wanted a site, or both source and target"),
        ({"source": "de", "sentences": ["a"]}, 422, "wanted a site, or both source and target"),
        ({"site": "bank", "source": "de", "sentences": ["a"]}, 422, "either a site, or both languages"),
        (
            {"site": "bnk", "sentences": ["a"]},
            404,
            "no site 'bnk'; did you mean 'bank'?; there are hospital, court, school, bank",
        ),
        ({"source": "de", "target": "xx", "sentences": ["a"]}, 404, "language = 'xx' is not known"),
        ({"source": "fi", "target": "de", "sentences": ["a"]}, 404, "no site has source fi or another of Finnic"),
        ({"source": "de", "target": "de", "sentences": ["a"]}, 404, "the same language on both sides"),
        ({"site": "bank"}, 422, "sentences: Field required; wanted {"),
        ({"site": "bank", "sentences": []}, 422, "sentences: List should have at least 1 item"),
        ({"site": "bank", "sentences": "geheim"}, 422, "sentences: Input should be a valid list"),
        ({"site": "bank", "sentences": [7]}, 422, "sentences.0: Input should be a valid string"),
        ({"site": 7, "sentences": ["a"]}, 422, "site: Input should be a valid string"),
        ({"site": "bank", "sentences": ["a"], "beam": 9}, 422, "beam: Extra inputs are not permitted"),
        ({"site": "bank", "sentences": ["a"] * 21}, 422, "got 21 sentences; wanted at most 20"),
        ({"site": "bank", "sentences": ["a", "b" * 201]}, 422, "sentence 2 has 201 characters; wanted at most 200"),
        ({"site": "bank", "sentences": ["a\nb"]}, 422, "sentence 1 has a line break"),
        ({"site": "bank", "sentences": ["ja", "ist das " * 20]}, 422, "sentence 2 has more than 32 tokens"),
        ({"site": "bank", "sentences": ["\ud800"]}, 422, "half a character"),
        ([], 422, "wanted {"),
        (None, 422, "wanted {"),
    ],
)
def test_a_mistake_is_answered_with_what_is_wanted(client: TestClient, body: Any, status: int, words: str) -> None:
    answer = client.post("/v1/translate", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert "geheim" not in answer.text
    assert "/" not in answer.json()["error"].replace("application/json", "")  # no path of the server's


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"sentences": NaN}', b"[" * 50_000, b'{"\\ud800": 1}'])
def test_what_is_no_json_is_refused(client: TestClient, content: bytes) -> None:
    answer = client.post("/v1/translate", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "error" in answer.json()) in {(422, True), (400, True)}


def test_what_is_not_told_to_be_json_is_refused_so_that_no_page_elsewhere_can_send_it_unasked(client: TestClient) -> None:
    good = json.dumps({"site": "bank", "sentences": ["a"]})
    assert client.post("/v1/translate", content=good, headers={"Content-Type": "text/plain"}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/translate", 405), ("PUT", "/health", 405)]
)
def test_what_is_not_there_is_told_in_the_same_form(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_health_counts(client: TestClient) -> None:
    before = client.get("/health").json()
    asked(client, site="bank", sentences=["a", "b"])
    after = client.get("/health").json()
    assert after["status"] == "ok"
    assert [after[name] - before[name] for name in ("requests", "sentences", "batches")] == [1, 2, 1]


def test_every_answer_says_that_nothing_of_it_is_kept_or_run(client: TestClient) -> None:
    for path in ("/", "/docs", "/health", "/v1/models", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_the_interface_as_a_page_names_every_endpoint_and_field_and_loads_nothing(client: TestClient) -> None:
    page = client.get("/docs").text
    described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        assert f"<code>{path}</code>" in page
        for status in [status for told in methods.values() for status in told["responses"]]:
            assert f"<td>{status}</td>" in page
    for field in described["components"]["schemas"]["Asked"]["properties"]:
        assert f"<code>{field}</code>" in page
    assert "curl --json" in page
    assert "http://localhost/v1/translate" in page
    assert "<script" not in page
    assert "src=" not in page


class Stalled(Batcher):
    """Never answers."""

    def ask(self, *asked: Any) -> Future[list[str]]:
        return Future()


def test_what_takes_too_long_is_given_up(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "Batcher", Stalled)
    with TestClient(api.application(models, api.Limits(timeout_s=0.05))) as client:
        answer = asked(client, site="bank", sentences=["a"])
    assert (answer.status_code, "not answered within 0.05 s" in answer.json()["error"]) == (504, True)


def test_when_too_many_wait_one_is_told_when_to_come_again(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    translate, full = models.translate, threading.Event()
    monkeypatch.setattr(models, "translate", lambda *what: (full.wait(60), translate(*what))[1])

    def ask(_: int) -> Any:
        answer = asked(client, site="bank", sentences=["a"])
        if answer.status_code == 503:
            full.set()
        return answer

    with TestClient(api.application(models, api.Limits(waiting=1))) as client, ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(int(answer.headers["retry-after"]) >= 1 and "try again" in answer.json()["error"] for answer in refused)


def test_an_error_inside_is_answered_and_logged_without_its_words(
    models: Models, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*what: object) -> list[str]:
        raise ValueError("the patient's name is Anna")

    monkeypatch.setattr(models, "translate", fail)
    limits = api.Limits()
    with TestClient(Guard(api.application(models, limits), limits.body_bytes), base_url="http://localhost") as client:
        answer = asked(client, site="bank", sentences=["a"])
    assert (answer.status_code, answer.json()) == (500, {"error": "an internal error; the server's log says where"})
    log = capsys.readouterr().err
    assert "error: POST /v1/translate: ValueError at" in log
    assert "Anna" not in log


def test_the_tensors_asked_for_lately_stay_in_memory_within_a_bound(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunModels(finished_run)
    first = run.of_site("bank").load()
    size = sum(tensor.nbytes for tensor in first.values())
    monkeypatch.setattr("fedlingua.desk.serving.models.KEPT_BYTES", 2 * size)
    models = Models(run, Decoding())
    wanted = {site: translator_of_site(finished_run, site).translate(SENTENCES) for site in run.sites}
    for site in [*run.sites, *reversed(list(run.sites)), "hospital"]:
        assert models.translate(models.sites[site], SENTENCES) == wanted[site]
        assert len(models._loaded) <= 2


def test_where_sites_keep_what_they_trained_only_sites_can_be_asked(four_sites: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**four_sites, "method": "adapter-local", "rounds": 1}, tmp_path / "run")
    shutil.rmtree(folder.directory / "sites" / "court")  # as in a deployment
    models = Models(RunModels(folder.directory), Decoding())
    with TestClient(api.application(models, api.Limits())) as client:
        listed = client.get("/v1/models").json()
        assert ([one["site"] for one in listed["sites"]], listed["directions"]) == (["hospital", "school", "bank"], [])
        assert listed["why_no_direction"] == "method adapter-local leaves nothing at the server"
        refused = asked(client, source="de", target="fr", sentences=["ja"])
        words = (
            "method adapter-local leaves nothing at the server; give site instead of source and target: hospital, school, bank"
        )
        assert (refused.status_code, refused.json()["error"]) == (404, words)
        away = asked(client, site="court", sentences=["ja"])
        assert (away.status_code, "lies with the site itself" in away.json()["error"]) == (404, True)
        own = asked(client, site="school", sentences=SENTENCES).json()
    assert own["translations"] == translator_of_site(folder.directory, "school").translate(SENTENCES)
    assert own["answered_by"]["told"] == "site school"


def test_a_run_that_trained_nothing_answers_with_the_base(four_sites: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**four_sites, "method": "base"}, tmp_path / "run")
    with TestClient(api.application(Models(RunModels(folder.directory), Decoding()), api.Limits())) as client:
        of_site = asked(client, site="hospital", sentences=SENTENCES).json()
        of_direction = asked(client, source="de", target="fr", sentences=SENTENCES).json()
    assert of_site["translations"] == of_direction["translations"]
    assert of_site["answered_by"]["told"] == "site hospital, which uses the base"
    assert of_direction["answered_by"]["told"] == "the base"


def test_limits_of_the_list_are_those_of_the_server(client: TestClient) -> None:
    assert client.get("/v1/models").json()["limits"] == {"sentences": 20, "characters": 200, "timeout_s": 30.0}
