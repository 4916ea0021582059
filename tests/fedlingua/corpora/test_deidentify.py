"""De-identification: every document passes its site's hook, what fails is left out and counted, and nothing of it is told."""

import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.consent.site_file import read_site_file
from fedlingua.corpora import deidentify as module
from fedlingua.corpora.clean import Account, CleaningRules
from fedlingua.corpora.deidentify import CommandHook, Failure, deidentify, load_hook
from fedlingua.corpora.read import LineDocuments
from fedlingua.corpora.rules import IntakeRules, TextRules
from fedlingua.corpora.sites import Site
from fedlingua.corpora.split import SplitRules
from fedlingua.corpora.texts import SiteText, read_sites, read_text, take_in
from tests.federations import REGISTER, federation

CANARY = "zanzibar-quicksilver-4711"
REQUIRED = '[text]\ndeidentify = "required"\n'
SPLIT = TextRules(SplitRules("shared-side", "k", 0.5, 0.25, 0.25))
HOOKS = f'''
import logging, sys, warnings

def scrub(document):
    print(document)
    print(document, file=sys.stderr)
    logging.getLogger("scrubbing").critical(document)
    if "refuse" in document:
        raise ValueError(f"cannot do {{document!r}}")
    return document.replace("{CANARY}", "NAME")

def refuse(document):
    raise LookupError(document)

def leave(document):
    sys.exit(document)

nothing = None
'''


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module of hooks."""
    (tmp_path / "scrubbing_hooks.py").write_text(HOOKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "scrubbing_hooks", raising=False)
    return "scrubbing_hooks"


def command(folder: Path, program: str) -> CommandHook:
    (folder / "hook.py").write_text(f"import sys, time, subprocess\n{program}\n")
    return CommandHook((sys.executable, "hook.py"), folder)


def clinic(folder: Path, with_hook: str, documents: int = 60) -> str:
    """A site in whose every note the canary stands; its hook fails on every third."""
    (folder / "data").mkdir(exist_ok=True)
    notes = [f"Vino {CANARY} por la tarde {n}. Nota {n}{' refuse' if n % 3 == 0 else ''}." for n in range(documents)]
    (folder / "data" / "notes.txt").write_text("\n".join(notes) + "\n")
    return f'[[site]]\nname = "clinic"\nlanguage = "es"\nlines = "notes.txt"\ndeidentify-with = {with_hook}\n'


def test_a_hook_replaces_what_it_finds_and_what_it_fails_on_is_left_out_and_counted(tmp_path: Path, hooks: str) -> None:
    text = read_sites(federation(tmp_path, REQUIRED + clinic(tmp_path, f'"{hooks}:scrub"')), frozenset())["clinic"]
    assert (text.account.read, text.account.kept) == (120, 80)
    assert text.account.dropped == {"not-deidentified": 40}
    assert text.account.failed_documents == {"ValueError": 20}
    sentences = [pair.source for pairs in text.splits.values() for pair in pairs]
    assert "Vino NAME por la tarde 1." in sentences
    assert not any(CANARY in sentence or "tarde 3." in sentence for sentence in sentences)


def test_a_failed_document_counts_though_its_raw_text_has_no_sentence_and_every_type_by_itself() -> None:
    def hook(document: str) -> str:
        if document == "\u200b":
            raise LookupError(document)
        return "" if document == "." else document

    account, spanish = Account(), Direction("es", "es")
    documents = ["Vino por la tarde.", "\u200b", ".", "\u200b"]
    take_in(documents, spanish, CleaningRules(), hook, account, "site clinic")
    assert account.failed_documents == {"LookupError": 2, "empty": 1}
    assert account.read == account.kept + sum(account.dropped.values())


def test_a_type_whose_name_may_hold_text_is_not_told() -> None:
    for name in (f"note of {CANARY}", "x" * 41, "Señora"):
        assert deidentify("uno", lambda document, name=name: type(name, (), {})()) == Failure("other")  # type: ignore[misc]


def test_no_text_is_in_errors_logs_output_or_account(
    tmp_path: Path, hooks: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    text = read_sites(federation(tmp_path, clinic(tmp_path, f'"{hooks}:scrub"')), frozenset())["clinic"]
    seen = f"{text.account}{text.splits}"
    for function, kind in (("refuse", "LookupError"), ("leave", "SystemExit")):
        with pytest.raises(CorpusError) as caught:
            read_sites(federation(tmp_path, clinic(tmp_path, f'"{hooks}:{function}"')), frozenset())
        told = str(caught.value)
        assert told == f"site clinic: deidentify-with failed on all of 60 documents ({kind} 60); try it on one of them"
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        seen += told
    assert CANARY not in seen + caplog.text + "".join(capfd.readouterr())


def test_logs_and_output_are_heard_again_after_the_hook(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deidentify("uno", lambda document: str(logging.getLogger("x").critical("lost") or print("lost") or document)) == "uno"
    logging.getLogger("x").critical("found")
    print("found")
    assert "lost" not in caplog.text + capsys.readouterr().out
    assert "found" in caplog.text


def loud(document: str) -> str:
    """Says the document on every way to the process's output that redirecting Python's streams does not stop."""
    print(document, file=sys.__stdout__)
    print(document, file=sys.__stderr__)
    os.write(1, document.encode())
    os.write(2, document.encode())
    ctypes.CDLL(None).printf(document.encode())
    subprocess.run(["sh", "-c", f"echo {document}; echo {document} >&2"], check=True)
    subprocess.Popen(["sh", "-c", f"sleep 0.05; echo {document} >&2"])
    return document


def test_descriptors_c_and_programs_that_a_hook_starts_are_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    assert deidentify(CANARY, loud) == CANARY
    time.sleep(0.2)  # the program that goes on
    os.write(1, b"out again")
    os.write(2, b"err again")
    seen = capfd.readouterr()
    assert CANARY not in seen.out + seen.err
    assert (seen.out, seen.err) == ("out again", "err again")


def test_what_was_said_before_the_hook_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    ctypes.CDLL(None).printf(b"before ")
    deidentify("uno", str)
    assert "before" in capfd.readouterr().out


def test_hooks_that_overlap_are_not_heard_and_the_last_gives_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    """The first to begin is the first to end, and the other speaks after that."""
    level, begun, ended = logging.root.manager.disable, threading.Event(), threading.Event()

    def late(document: str) -> str:
        begun.set()
        ended.wait(10)
        os.write(2, document.encode())
        return document

    def early(document: str) -> str:
        other.start()
        begun.wait(10)
        return document

    other = threading.Thread(target=deidentify, args=(CANARY, late))
    deidentify("uno", early)
    ended.set()
    other.join()
    os.write(2, b"again")
    assert capfd.readouterr().err == "again"
    assert logging.root.manager.disable == level


@pytest.mark.parametrize(
    ("found", "kind"), [(None, "NoneType"), (b"uno", "bytes"), ("", "empty"), (" \n", "empty"), ("\ud800", "UnicodeEncodeError")]
)
def test_a_hook_that_gives_no_text_has_failed(found: object, kind: str) -> None:
    assert deidentify("uno", lambda document: found) == Failure(kind)


def test_a_command_reads_a_document_and_writes_it(tmp_path: Path) -> None:
    hook = load_hook(command(tmp_path, "sys.stdout.write(sys.stdin.read().replace('Señora', 'X'))"), "site a")
    assert deidentify("Señora\nuno — dos", hook) == "X\nuno — dos"


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (f"print('{CANARY}', file=sys.stderr); print('x'); sys.exit(3)", "CalledProcessError"),
        ("sys.stdin.read()", "empty"),
        ("sys.stdout.buffer.write(b'\\xff')", "UnicodeDecodeError"),
    ],
)
def test_a_command_that_ends_badly_or_writes_no_text_has_failed(
    tmp_path: Path, program: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert deidentify(CANARY, load_hook(command(tmp_path, program), "site a")) == Failure(kind)
    assert CANARY not in "".join(capfd.readouterr())


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 1.0)
    waits = "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    assert deidentify("uno", load_hook(command(tmp_path, waits), "site a")) == Failure("TimeoutExpired")


def test_a_long_document_goes_through_a_command_that_does_not_read_it(tmp_path: Path) -> None:
    assert deidentify("x" * 1_000_000, load_hook(command(tmp_path, "print('short')"), "site a")) == "short\n"


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("nowhere_at_all:scrub", "deidentify-with = 'nowhere_at_all:scrub': cannot import 'nowhere_at_all'"),
        ("scrubbing_hooks:scrubb", "scrubbing_hooks has no function 'scrubb'; did you mean 'scrub'?"),
        ("scrubbing_hooks:nothing", "scrubbing_hooks has no function 'nothing'"),
        (CommandHook(("no-such-program",), Path()), "deidentify-with: there is no program 'no-such-program'"),
        (CommandHook(("./hook",), Path()), "there is no program './hook' that can be started"),
    ],
)
def test_a_hook_that_is_not_there_is_told_before_any_text_is_read(hooks: str, hook: str | CommandHook, told: str) -> None:
    site = Site("clinic", Direction("es", "es"), LineDocuments(Path("nowhere.txt")), deidentify_with=hook)
    with pytest.raises(ConfigError) as caught:
        read_text([site], SPLIT)
    assert str(caught.value).startswith("site clinic: deidentify-with")
    assert told in str(caught.value)


def test_a_module_is_found_beside_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook_beside_the_app.py").write_text("def scrub(document):\n    return document.upper()\n")
    monkeypatch.setattr(module, "APP_DIR", tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert deidentify("uno", load_hook("hook_beside_the_app:scrub", "site a")) == "UNO"


def test_a_program_is_found_beside_the_corpus(tmp_path: Path) -> None:
    program = tmp_path / "scrub"
    program.write_text("#!/bin/sh\ntr a-z A-Z\n")
    program.chmod(0o755)
    assert deidentify("uno", load_hook(CommandHook(("./scrub",), tmp_path), "site a")) == "UNO"


@pytest.mark.parametrize("corpus", ['lines = "nowhere.txt"', 'phrasebook = "hospital"'])
def test_a_federation_that_requires_it_refuses_a_site_without_a_hook(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(ConfigError, match=r"site clinic: \[text\] deidentify = 'required', but no hook .*; name its hook"):
        federation(tmp_path, REQUIRED + f'[[site]]\nname = "clinic"\nlanguage = "es"\n{corpus}\n')


def test_translated_text_has_no_hooks_so_it_cannot_be_required(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"site court: .* hooks are for text in one language, so leave deidentify out"):
        federation(tmp_path, REQUIRED + REGISTER)


def test_any_other_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[text\]: deidentify = 'yes' is not known; choose one of required, off"):
        federation(tmp_path, '[text]\ndeidentify = "yes"\n' + REGISTER)


def test_a_server_does_not_know_the_hooks_of_deployed_sites(tmp_path: Path) -> None:
    read = federation(tmp_path, REQUIRED + '[[site]]\nname = "clinic"\nlanguage = "es"\n')
    assert read.rules.text == IntakeRules("required")


def site_file(folder: Path, text: str, hook: str = "") -> Path:
    site = f'[[site]]\nname = "clinic"\nlanguage = "es"\nlines = "data/notes.txt"\n{hook}'
    (folder / "site.toml").write_text(f'{site}{text}[server]\naddress = "a:1"\n')
    return folder / "site.toml"


def test_what_the_server_requires_holds_at_a_deployed_site(tmp_path: Path) -> None:
    clinic(tmp_path, '""')
    site = read_site_file(site_file(tmp_path, "")).sites
    rules = TextRules(SPLIT.split, text=IntakeRules("required"))
    with pytest.raises(ConfigError, match=r"site clinic: .* no hook de-identifies this site's text"):
        read_text(site, TextRules.from_flat(rules.flat()))
    assert isinstance(read_text(site, SPLIT)["clinic"], SiteText)


def test_what_a_sites_own_file_requires_holds_whatever_the_server_says(tmp_path: Path, hooks: str) -> None:
    clinic(tmp_path, '""')
    with pytest.raises(ConfigError, match=r"site clinic: \[text\] deidentify = 'required', but no hook de-identifies"):
        read_site_file(site_file(tmp_path, REQUIRED))
    with pytest.raises(ConfigError, match=r"site.toml \[text\]: deidentify = 'on' is not known"):
        read_site_file(site_file(tmp_path, '[text]\ndeidentify = "on"\n'))
    site = read_site_file(site_file(tmp_path, REQUIRED, f'deidentify-with = "{hooks}:scrub"\n')).sites
    assert SPLIT.text.deidentify == "off"
    assert read_text(site, SPLIT)["clinic"].account.dropped == {"not-deidentified": 40}
