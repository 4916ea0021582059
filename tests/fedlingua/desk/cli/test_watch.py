"""`fedlingua watch`: frames of run folders as they are found, and a run followed to its end, also in a real pseudo terminal."""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk.cli import watch
from fedlingua.desk.cli.output import AnsweringConsole
from fedlingua.desk.cli.watch import sparkline
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar


def reply(folder: RunFolder, site: str, number: int) -> None:
    folder.event("reply", phase="train", round=number, site=site, seconds=1.0, loss=2.0, uplink_bytes=1000)


def add_round(folder: RunFolder, number: int, sites: list[str], rounds: int = 16, **more: Any) -> None:
    """A round as the server ends it: dev losses fall by a quarter a round."""
    loss = 4.0 * 0.75**number
    told = {"seconds": {"evaluate": 0.1}, "uplink_bytes": 1000, "downlink_bytes": 2000, "dev_loss": loss}
    folder.add_round(
        {"round": number, "seconds": 10.0, "dev_loss": loss, "sites": dict.fromkeys(sites, told), "failures": [], **more}
    )
    folder.update(rounds=number, best_round=number)
    folder.event("round", round=number, rounds=rounds, dev_loss=loss, seconds=10.0, uplink_bytes=1000)


@pytest.fixture
def clock_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow a machine is, what was just written is "0 s ago"."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.fixture
def folder(run_config: dict[str, Scalar], tmp_path: Path) -> RunFolder:
    """A run of two sites that is in round 3 of 16."""
    return begun(run_config, tmp_path / "demo", ["court", "bank"], 3)


def begun(run_config: dict[str, Scalar], directory: Path, sites: list[str], rounds: int) -> RunFolder:
    made = RunFolder(directory)
    made.open(settings_from({**run_config, "run-dir": str(directory)}), 1)
    made.write("sites.json", {site: {} for site in sites})
    for number in range(rounds):
        add_round(made, number, sites)
    made.event("phase", phase="train", round=rounds, rounds=16, sites=len(sites))
    reply(made, sites[0], rounds)
    return made


def once(run_dir: Path, width: int = 80, height: int = 24, **more: Any) -> list[str]:
    console = AnsweringConsole(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    on(console, run_dir, once=True, silence=more.get("silent_s", 60.0))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def on(console: AnsweringConsole, run_dir: Path, **how: Any) -> None:
    """Watch on a console that is none of this process's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "console", lambda: console)
        patch.setattr("fedlingua.desk.cli.output.console", lambda: console)
        patch.setattr(watch, "LOOK_S", 0.02)
        watch.watch(run_dir, **how)


@pytest.mark.usefixtures("clock_stopped")
def test_a_frame(folder: RunFolder) -> None:
    folder.event("failure", phase="train", round=3, site="bank", kind="late", reason="no reply")
    with folder.held():
        lines = once(folder.directory)
    assert lines[0] == "demo: running, round 2 of 16, attempt 1, best round 2"
    assert lines[1] == "train: 2 of 2 sites; about 2 min 20 s left"
    assert lines[2] == "dev loss 4.0000 █▄▁ 2.2500"
    assert lines[3] == "6.00 kB up, 12.00 kB down; 1 failures"
    assert lines[5].split() == ["court", "3", "train", "2.2500", "0", "s", "ago", "1.00", "kB", "0"]
    assert lines[6].split() == ["bank", "3", "train", "2.2500", "never", "0", "B", "1"]
    assert lines[7] == "- train of round 3: site bank failed: no reply"


def test_a_learned_threshold_is_shown(folder: RunFolder) -> None:
    add_round(folder, 3, ["court"], threshold={"theta": 0.125, "mu": 0.5})
    assert any(line.endswith("; threshold 0.1250") for line in once(folder.directory))


def test_many_sites_fit_a_small_terminal_and_those_in_trouble_are_seen(run_config: dict[str, Scalar], tmp_path: Path) -> None:
    sites = [f"site-with-quite-a-long-name-{number}" for number in range(40)]
    folder = begun(run_config, tmp_path / "demo", sites, 30)
    for number in range(8):
        folder.event("failure", phase="train", round=3, site=sites[-1], kind="late", reason=f"no reply {number} " + "x" * 200)
    lines = once(folder.directory)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("site-with-quite-a-long-…") and line.endswith("8") for line in lines)
    assert any("and 27 more" in line for line in lines)


def test_words_of_sites_are_neither_markup_nor_control_characters(run_config: dict[str, Scalar], tmp_path: Path) -> None:
    folder = begun(run_config, tmp_path / "demo", ["[red]x[/red]\x1b[2J", "court"], 1)
    folder.event("failure", phase="train", round=1, site="[red]x[/red]\x1b[2J", kind="error", reason="[bold]\x1b[31m\nwords")
    text = "\n".join(once(folder.directory, width=200))
    assert "\x1b[2J" not in text
    assert "\x1b[31m" not in text
    assert "[red]x[/red] failed: [bold] words" in text


@pytest.mark.usefixtures("clock_stopped")
def test_half_written_lines_and_events_of_other_versions_are_left_out(folder: RunFolder) -> None:
    before = once(folder.directory)
    for name, rest in (
        ("rounds.jsonl", '{"round": 3, "dev_l'),
        ("progress.jsonl", '[1]\n{"event": "weather"}\n{"event": "phase"}\n{"eve'),
    ):
        with (folder.directory / name).open("a") as stream:
            stream.write(rest)
    assert once(folder.directory) == before


def test_a_resumed_run_shows_each_round_once(folder: RunFolder) -> None:
    folder.close("failed", "killed")
    folder.cut_rounds(1)
    folder.update(status="running", attempt=2, rounds=1)
    lines = once(folder.directory)
    assert "round 1 of 16, attempt 2" in lines[0]
    add_round(folder, 2, ["court", "bank"])
    assert "dev loss 4.0000 █▄▁ 2.2500" in once(folder.directory)


def test_a_terminal_without_such_letters_gets_others(folder: RunFolder) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    on(AnsweringConsole(file=out, width=80, height=24), folder.directory, once=True)
    out.flush()
    assert b"dev loss 4.0000 #=_ 2.2500" in out.buffer.getvalue()


def test_sparklines() -> None:
    assert sparkline([1.0, 1.0], 8) == "▁▁"
    assert sparkline([3.0, 2.1, 1.0], 8) == "█▅▁"
    assert len(sparkline([float(number) for number in range(100)], 10)) == 10
    assert sparkline([float(number) for number in range(100)], 10)[-1] == "█"


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run folder.*--wait"):
        once(tmp_path)


def test_a_failed_run_is_shown_and_told(folder: RunFolder) -> None:
    folder.close("failed", "3 of 8 sites answered")
    with pytest.raises(RunError, match="the run failed: 3 of 8 sites answered"):
        once(folder.directory)


def followed(run_dir: Path, silent_s: float = 60.0, terminal: bool = False) -> str:
    out = io.StringIO()
    console = AnsweringConsole(file=out, force_terminal=terminal, width=80, height=24)
    on(console, run_dir, wait=True, silence=silent_s)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_is_followed_from_before_its_folder_is_there_to_its_end(
    run_config: dict[str, Scalar], tmp_path: Path, terminal: bool
) -> None:
    def server() -> None:
        time.sleep(0.1)
        folder = begun(run_config, tmp_path / "demo", ["court"], 1)
        with folder.held():
            for number in (1, 2):
                time.sleep(0.15)
                add_round(folder, number, ["court"], 2)
            folder.close("completed")

    thread = threading.Thread(target=server)
    thread.start()
    shown = followed(tmp_path / "demo", terminal=terminal)
    thread.join()
    if terminal:
        assert "demo: completed, round 2 of 16" in shown
        assert "dev loss 4.0000 █▄▁ 2.2500" in shown
    else:
        assert "\x1b" not in shown
        assert [line for line in shown.splitlines() if line.startswith("round ")] == [
            "round 0/16, dev loss 4.0000, 1.00 kB up, 10.0 s, 2 min 40 s left",
            "round 1/2, dev loss 3.0000, 1.00 kB up, 10.0 s, 10 s left",
            "round 2/2, dev loss 2.2500, 1.00 kB up, 10.0 s",
        ]


def test_a_run_whose_server_is_gone_is_broken_off_after_a_silence(folder: RunFolder) -> None:
    with pytest.raises(RunError, match=r"no server holds the run.*was interrupted; resume it with: fedlingua run --resume"):
        followed(folder.directory, silent_s=0.2)


def test_a_folder_that_is_written_elsewhere_is_no_broken_one(folder: RunFolder) -> None:
    assert (
        "demo: running, round 2 of 16, attempt 1, best round 2 (no server holds its folder"
        in once(folder.directory, width=200)[0]
    )
    assert "its server is gone" in once(folder.directory, width=200, silent_s=-1.0)[0]


def test_a_folder_that_is_made_anew_meanwhile_is_waited_for(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], watch.look

    def look(run_dir: Path) -> watch.Snapshot:
        calls.append(1)
        if len(calls) == 2:
            raise RunError("half a run.json")
        if len(calls) == 3:
            folder.close("completed")
        return real(run_dir)

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(watch, "_stamp", lambda run_dir: [(time.time_ns(), 0)])
    assert "demo" in followed(folder.directory)
    assert len(calls) == 3


def test_a_run_that_ends_while_it_is_looked_at_first_is_no_broken_one(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], watch.look

    def look(run_dir: Path) -> watch.Snapshot:
        picture = real(run_dir)
        calls.append(1)
        if len(calls) == 1:
            folder.close("completed")
        return picture

    monkeypatch.setattr(watch, "look", look)
    followed(folder.directory, silent_s=0.5)
    assert len(calls) == 2


def test_in_a_real_terminal_until_the_run_ends(folder: RunFolder) -> None:
    """80 columns, 24 lines; exit code 0 of a completed run."""
    above, below = pty.openpty()
    fcntl.ioctl(below, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TERM": "xterm",
        "PYTHONIOENCODING": "utf-8",
    }
    code = "from fedlingua.desk.cli.app import main; main()"
    arguments = [sys.executable, "-c", code, "watch", str(folder.directory)]
    shown = b""
    with folder.held(), subprocess.Popen(arguments, stdin=below, stdout=below, stderr=below, env=environment) as process:
        os.close(below)
        try:
            while b"best round 2" not in shown:
                shown += os.read(above, 65536)
            add_round(folder, 3, ["court", "bank"])
            while b"best round 3" not in shown:
                shown += os.read(above, 65536)
            folder.close("completed")
            while b"demo: completed" not in shown:
                shown += os.read(above, 65536)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(above)
    text = shown.decode("utf-8", "replace")
    assert "█" in text
    assert "\x1b[?25l" in text  # the cursor is hidden while it draws
    assert json.loads((folder.directory / "run.json").read_text())["status"] == "completed"
