"""Sites compared over messages: what the server finds, what the sites leave out, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord

from fedlingua.common.errors import RunError
from fedlingua.corpora.overlap import LEAKS_FILE, digests_of, leaks, left_out, shared_sentences, without_leaks
from fedlingua.corpora.simulated import texts_without_leaks
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.report.run_page import write_report
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import from_record, to_record
from fedlingua.layers.overlap import FILE
from fedlingua_lab.start import Start
from strategies.rounds.registration import Registry
from tests.in_process import InProcessGrid, checkpoint_bytes, run, run_on

WORDS = ["haus", "baum", "hund", "katze", "fisch", "brot", "stuhl", "tisch", "lampe", "fenster", "tor", "garten"]


def corpora(folder, **sites):
    """A TSV file a site. sites: name -> (first, last) of the numbered sentences that it has."""
    for name, (first, last) in sites.items():
        lines = [f"das {name} hat {WORDS[n % 12]} nummer {n}\tthe {WORDS[n % 12]} has number {n}" for n in range(first, last)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def federation(folder, split: str, **sites):
    text = f"[split]\n{split}\ntrain = 0.5\ndev = 0.2\ntest = 0.3\n"
    text += "".join(
        f'[[site]]\nname = "{name}"\ndirection = "{direction}"\ntsv = "{name}.tsv"\n' for name, direction in sites.items()
    )
    (folder / "leaky.toml").write_text(text)
    return folder / "leaky.toml"


@pytest.fixture
def config(four_sites, tmp_path):
    """Three sites into English that have a third of their English in common and divide it each as it likes."""
    corpora(tmp_path, one=(0, 60), two=(40, 100), three=(80, 140))
    file = federation(tmp_path, 'mode = "paper"', one="de-en", two="fr-en", three="nl-en")
    return {**four_sites, "federation": str(file), "data-dir": str(tmp_path), "method": "adapter-fed", "rounds": 1}


def expected(config, key=b"whatever key"):
    """(figures, site -> what leaks) of the federation's files, without a message."""
    texts = read_sites(read_federation(Path(config["federation"]), Path(config["data-dir"])), frozenset())
    digests = {site: digests_of([text], key) for site, text in texts.items()}
    gone = leaks(digests)
    counts = {site: left_out([text], [without_leaks(text, gone[site], key)]) for site, text in texts.items()}
    return texts, shared_sentences(digests), counts


def test_a_run_that_reports_finds_what_the_files_say_and_changes_no_byte(config, tmp_path):
    plain, _ = run(config, tmp_path / "plain")
    told, _ = run({**config, "overlap": "report"}, tmp_path / "told")
    _, found, counts = expected(config)
    assert sum(count["test"] for count in counts.values()) > 5
    about = told.read(FILE)
    assert about["removed"] is False
    assert about["sites"] == {site: {"languages": found[site], "leaks": counts[site]} for site in ("one", "two", "three")}
    assert checkpoint_bytes(told) == checkpoint_bytes(plain)
    assert told.read("scores.json")["sites"] == plain.read("scores.json")["sites"]
    assert told.read("run.json")["config_hash"] == plain.read("run.json")["config_hash"]
    assert plain.read(FILE) is None
    assert not list(told.directory.rglob(LEAKS_FILE))
    assert {"digests", "leaks"} <= set(told.read("traffic.json")["one"])
    assert not {"digests", "leaks"} & set(plain.read("traffic.json")["one"])


def test_sites_that_give_a_language_different_codes_are_compared(config, tmp_path):
    codes = {"one": "de--en-GB", "two": "en-GB--en-US", "three": "nl-en"}
    file = federation(tmp_path, 'mode = "paper"', **codes)
    folder, _ = run({**config, "federation": str(file), "overlap": "remove"}, tmp_path / "run")
    _, found, counts = expected({**config, "federation": str(file)})
    assert folder.read(FILE)["sites"] == {site: {"languages": found[site], "leaks": counts[site]} for site in codes}
    assert all(count["test"] for count in counts.values())


def test_what_leaks_is_left_out_counted_and_not_scored(config, tmp_path):
    folder, _ = run({**config, "overlap": "remove"}, tmp_path / "run")
    texts, _, counts = expected(config)
    sites, scores = folder.read("sites.json"), folder.read("scores.json")["sites"]
    for site, text in texts.items():
        (account,) = sites[site]["accounts"].values()
        assert account["read"] == account["kept"] + sum(account["dropped"].values()) == text.account.read
        assert account["dropped"]["trained-elsewhere"] == sum(counts[site].values()) > 0
        assert sites[site]["test"] == scores[site]["sentences"] == len(text.splits["test"]) - counts[site]["test"]
        assert sites[site]["dev"] == len(text.splits["dev"]) - counts[site]["dev"]
        assert sites[site]["train"] == len(text.splits["train"])
    assert folder.read(FILE)["removed"] is True
    assert "trained-elsewhere" in write_report(folder.directory).read_text()


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_number_of_nodes_and_the_order_of_replies_change_no_figure(config, tmp_path, nodes):
    config = {**config, "overlap": "remove"}
    some, _ = run(config, tmp_path / "some")
    other, _ = run(config, tmp_path / "other", num_nodes=nodes, shuffle_seed=nodes)
    assert other.read(FILE) == some.read(FILE)
    assert checkpoint_bytes(other) == checkpoint_bytes(some)


def test_a_pool_of_all_text_is_scored_on_what_its_sites_would_be(config, tmp_path):
    apart, _ = run({**config, "overlap": "remove"}, tmp_path / "apart")
    pooled, _ = run({**config, "overlap": "remove", "method": "centralized-adapter"}, tmp_path / "pooled")
    scores = [folder.read("scores.json")["sites"] for folder in (apart, pooled)]
    assert {s: each["sentences"] for s, each in scores[0].items()} == {s: each["sentences"] for s, each in scores[1].items()}
    assert pooled.read(FILE) is None


def test_personalization_goes_on_without_what_the_run_left_out(config, tmp_path):
    config = {**config, "overlap": "remove"}
    folder, _ = run(config, tmp_path / "run")
    held = Start.of(folder.directory).texts
    left = texts_without_leaks(Path(config["federation"]), config["data-dir"])
    assert {site: texts[site].splits for site, texts in held.items()} == {site: text.splits for site, text in left.items()}


def test_mixed_text_is_compared_as_it_is_held(config, tmp_path):
    file = federation(tmp_path, 'mode = "components"\nmixed = true', one="de-en", two="fr-en", three="nl-en")
    folder, _ = run({**config, "federation": str(file), "overlap": "remove"}, tmp_path / "run")
    about = folder.read(FILE)["sites"]
    assert set(about["one"]["languages"]) == {"de", "en", "fr", "nl"}
    assert all(site["leaks"] == {"dev": 0, "test": 0} for site in about.values())


def test_text_in_one_language_is_compared_too(four_texts, tmp_path):
    lines = {
        name: [f"el {WORDS[n % 12]} tiene numero {n}" for n in range(*span)] for name, span in (("a", (0, 60)), ("b", (30, 90)))
    }
    for name, documents in lines.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(documents) + "\n")
    text = '[split]\nmode = "paper"\ntrain = 0.5\ndev = 0.2\ntest = 0.3\n'
    text += "".join(f'[[site]]\nname = "{name}"\nlanguage = "es"\nlines = "{name}.txt"\n' for name in lines)
    (tmp_path / "one_language.toml").write_text(text)
    config = {**four_texts, "federation": str(tmp_path / "one_language.toml"), "data-dir": str(tmp_path), "overlap": "report"}
    folder, _ = run({**config, "method": "adapter-fed", "rounds": 1}, tmp_path / "run")
    shared = folder.read(FILE)["sites"]["a"]["languages"]["es"]
    assert shared["sentences"]["all"] == folder.read("sites.json")["a"]["accounts"]["es"]["kept"]
    assert shared["elsewhere"]["all"] > 0


# --- Broken off, gone and back ----------------------------------------------------------------------------------------------------------


class Breaking(InProcessGrid):
    """Ends the run when the first site is to train in round 2."""

    def push_messages(self, messages):
        messages = list(messages)
        tasks = [message.content.config_records.get(protocol.TASK, {}) for message in messages]
        if any(task.get("round") == 2 for task in tasks) and not self.run_config["resume"]:
            raise OSError("the machine died")
        return super().push_messages(messages)


def test_a_resumed_run_asks_nothing_again_and_ends_in_the_same_bytes(config, tmp_path):
    config = {**config, "overlap": "remove", "rounds": 2, "run-dir": str(tmp_path / "broken")}
    whole, _ = run(config, tmp_path / "whole")
    with pytest.raises(OSError, match="died"):
        run_on(Breaking({**config, "resume": False}, 2), config)
    resumed = {**config, "resume": True}
    grid = Breaking(resumed, 2)
    folder = run_on(grid, resumed)
    assert not {protocol.DIGESTS, protocol.LEAKS} & {message.metadata.message_type for message in grid.sent}
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole)
    assert folder.read("scores.json")["sites"] == whole.read("scores.json")["sites"]
    assert folder.read("sites.json") == whole.read("sites.json")


def test_a_site_that_lost_what_it_leaves_out_says_so_and_trains_on_nothing(config, tmp_path):
    config = {**config, "overlap": "remove", "rounds": 2, "run-dir": str(tmp_path / "broken")}
    with pytest.raises(OSError, match="died"):
        run_on(Breaking({**config, "resume": False}, 2), config)
    (tmp_path / "broken" / "sites" / "two" / LEAKS_FILE).unlink()
    resumed = {**config, "resume": True}
    with pytest.raises(RunError, match="two: ExchangeError: this site has lost the list of pairs that it leaves out in this run"):
        run_on(Breaking(resumed, 2), resumed)


# --- Refused ----------------------------------------------------------------------------------------------------------------------------


def test_one_site_alone_is_refused(config, tmp_path):
    file = federation(tmp_path, 'mode = "paper"', one="de-en")
    with pytest.raises(RunError, match="one is the only one; leave it 'off'"):
        run({**config, "federation": str(file), "overlap": "report"}, tmp_path / "run")


def test_a_site_of_which_nothing_would_be_left_is_named_with_the_number(config, tmp_path):
    # The others train on all that one tests on, and on one sentence of its dev.
    splits = '[split]\nmode = "given"\n'
    for name in ("one", "two", "three"):
        train, dev, test = (
            (range(20), range(20, 25), range(25, 30)) if name == "one" else (range(24, 60), range(60, 65), range(65, 70))
        )
        for split, numbers in {"train": train, "dev": dev, "test": test}.items():
            lines = [f"das {name} hat nummer {n}\tit has the number {n}" for n in numbers]
            (tmp_path / f"{name}.{split}.tsv").write_text("\n".join(lines) + "\n")
        splits += f'[[site]]\nname = "{name}"\ndirection = "de-en"\nsplits = "{name}.{{}}.tsv"\n'
    (tmp_path / "given.toml").write_text(splits)
    given = {**config, "federation": str(tmp_path / "given.toml")}
    with pytest.raises(RunError, match=r"overlap = 'remove'.*one: all 5 pairs of test"):
        run({**given, "overlap": "remove"}, tmp_path / "removed")
    with pytest.raises(RunError, match="one: all 5 pairs of test"):
        run({**given, "overlap": "remove", "method": "centralized-adapter"}, tmp_path / "pooled")
    folder, _ = run({**given, "overlap": "report"}, tmp_path / "told")
    assert folder.read(FILE)["sites"]["one"]["leaks"] == {"dev": 1, "test": 5}


def tampered(change, message_type=protocol.DIGESTS, site="two"):
    def tamper(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == message_type and task.get("site") == site:
            change(reply.content)
        return reply

    return tamper


def replaced(name, made):
    """A change of one array of a reply."""

    def change(content):
        arrays = from_record(content.array_records[protocol.ARRAYS])
        content[protocol.ARRAYS] = to_record({**arrays, name: made(arrays[name])})

    return change


def check(text):
    return lambda content: content.__setitem__(protocol.KEY, ConfigRecord({"check": text}))


def counts(**numbers):
    return lambda content: content.__setitem__(protocol.METRICS, MetricRecord(numbers))


@pytest.mark.parametrize(
    ("change", "message_type", "told"),
    [
        (check("0" * 16), protocol.DIGESTS, "2 different overlap keys .*one, three.*give every site the same file"),
        (check("no key"), protocol.DIGESTS, "check of the overlap key = 'no key'"),
        (replaced("train.en", lambda row: row[::-1]), protocol.DIGESTS, "two: bad reply: the hashes train.en do not rise"),
        (replaced("test.fr", lambda row: row.astype(np.float32)), protocol.DIGESTS, "test.fr are float32"),
        (replaced("test.fr", lambda row: row.reshape(1, -1)), protocol.DIGESTS, "wanted a row of uint64"),
        (
            replaced("test.fr", lambda row: np.arange(999, dtype=np.uint64)),
            protocol.DIGESTS,
            "got 999 hashes test.fr; the site has 18",
        ),
        (replaced("test.fr", lambda row: np.arange(9999, dtype=np.uint64)), protocol.DIGESTS, "bytes; wanted at most"),
        (lambda content: content.pop(protocol.KEY), protocol.DIGESTS, "the reply has no 'key'"),
        (counts(dev=1, test=99), protocol.LEAKS, "test = 99.* pairs leak; wanted a count, and the site has 18"),
        (counts(dev=0.5, test=1), protocol.LEAKS, "dev = 0.5 pairs leak"),
        (counts(test=1), protocol.LEAKS, "lack 'dev'"),
    ],
)
def test_a_reply_that_is_none_ends_the_run_with_the_sites_name(config, tmp_path, change, message_type, told):
    with pytest.raises(RunError, match=f"(?s){told}"):
        run({**config, "overlap": "remove"}, tmp_path / "run", tamper=tampered(change, message_type))


def test_a_site_that_is_silent_is_named(config, tmp_path):
    def silent(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        return None if request.metadata.message_type == protocol.DIGESTS and task.get("site") == "three" else reply

    with pytest.raises(
        RunError, match=r"needs the hashes of every site's sentences, and 1 gave none \(three: no reply within 2 s"
    ):
        run({**config, "overlap": "report", "deadline.phase-s": 2.0}, tmp_path / "run", tamper=silent)


def test_a_server_that_asks_where_the_run_compares_nothing_gets_nothing(config, tmp_path):
    grid = InProcessGrid({**config, "run-dir": str(tmp_path / "run")}, 1)
    roll = Registry(read_federation(Path(config["federation"]), tmp_path), "", "", nodes={"one": 100})
    for message_type in (protocol.DIGESTS, protocol.LEAKS):
        (number,) = grid.push_messages([roll.request(message_type, Task("one", "run", 1, 0), 5.0)])
        (reply,) = grid.pull_messages([number])
        assert "overlap = 'off' in this run" in reply.error.reason
