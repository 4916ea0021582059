"""`fedlingua server`: set-up by the command, the keys that may join, and how `flwr` reaches the server."""

import contextlib
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, DeploymentError, FedlinguaError, RunError
from fedlingua.desk.cli import server as command
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.server import _keys, profile_of
from fedlingua.desk.deployment import certificates
from fedlingua.desk.deployment.programs import control_address
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server
from fedlingua.desk.deployment.service import Service, answers
from fedlingua.desk.deployment.site_setup import make_key
from fedlingua.desk.processes import flower_environment, free_port
from fedlingua.runs.folder import RunFolder


def made(folder: Path, insecure: bool = False) -> ServerFile:
    return init_server(folder / "server", "north", [], "0.0.0.0:19092", "127.0.0.1:19093", insecure)


def join(folder: Path, name: str) -> tuple[Path, str]:
    key = make_key(folder / f"{name}.key")
    file = folder / f"{name}.toml"
    file.write_text(f'[[site]]\nname = "{name}"\ndirection = "de-fr"\npublic-key = "{key}"\n')
    return file, key


def append(server: ServerFile, text: str) -> None:
    server.federation.write_text(server.federation.read_text() + text)


def test_a_server_without_sites_starts_with_no_keys(tmp_path: Path) -> None:
    assert _keys(made(tmp_path)) == {}


def test_each_site_has_its_key(tmp_path: Path) -> None:
    server = made(tmp_path)
    expected = {}
    for name in ("clinic", "court"):
        file, expected[name] = join(tmp_path, name)
        add_site(server, file)
    assert _keys(server) == expected


def test_a_site_without_a_key_or_with_a_damaged_one_cannot_join(tmp_path: Path) -> None:
    server = made(tmp_path)
    file, key = join(tmp_path, "clinic")
    add_site(server, file)
    whole = server.federation.read_text()
    append(server, '[[site]]\nname = "bank"\ndirection = "de-fr"\n')
    with pytest.raises(DeploymentError, match="site 'bank' has no public-key"):
        _keys(server)
    server.federation.write_text(whole.replace(key, key[:-9]))
    with pytest.raises(ConfigError, match=r"federation\.toml, site clinic: the key is damaged"):
        _keys(server)


def test_an_insecure_server_asks_for_no_keys(tmp_path: Path) -> None:
    server = made(tmp_path, insecure=True)
    append(server, '[[site]]\nname = "bank"\ndirection = "de-fr"\n')
    assert _keys(server) == {}


@pytest.mark.parametrize("insecure", [True, False])
def test_flwr_reaches_the_server_with_its_authority_unless_insecure(tmp_path: Path, insecure: bool) -> None:
    server = made(tmp_path, insecure)
    profile = profile_of(server)
    assert (profile.address, profile.insecure, profile.local) == (control_address(server), insecure, False)
    assert profile.root_certificates == ("" if insecure else str(server.authority))


def test_init_and_add_go_by_the_command_and_say_what_comes_next(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    begun = CliRunner().invoke(app, ["server", "init", "--to", str(folder), "--host", "FL.example.org"])
    assert begun.exit_code == 0, begun.output
    assert f"edit {folder / 'experiment.toml'}; then, with the sites' files: fedlingua server start {folder}" in begun.output
    assert "certificate for: fl.example.org" in begun.output
    assert "insecure" not in begun.output
    files = [str(join(tmp_path, name)[0]) for name in ("clinic", "court")]
    added = CliRunner().invoke(app, ["server", "add", str(folder), *files])
    assert added.exit_code == 0, added.output
    *names, invited = added.output.splitlines()
    assert [line.split()[0] for line in names] == ["clinic", "court"]
    assert invited == f"give every site: {folder / 'invitation.toml'} (it has changed); nothing in it is secret"


def test_an_insecure_server_is_warned_of(tmp_path: Path) -> None:
    begun = CliRunner().invoke(app, ["server", "init", "--to", str(tmp_path / "server"), "--insecure"])
    assert begun.exit_code == 0, begun.output
    assert "warning: insecure = true" in begun.output


class Starting:
    """A SuperLink; `meanwhile` happens while its API is waited for, and what `looks` holds between two looks at the federation file."""

    def __init__(self, meanwhile: Callable[[], object], looks: list[Callable[[], object]]) -> None:
        self.meanwhile, self.looks, self.stopped = meanwhile, iter(looks), self

    def __call__(self, *_: object, **__: object) -> "Starting":
        return self

    def end_earlier(self) -> None:
        pass

    def __enter__(self) -> "Starting":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_until(self, *_: object) -> None:
        self.meanwhile()

    def check(self) -> None:
        pass

    def wait(self, _: float) -> bool:
        if look := next(self.looks, None):
            look()
        return look is None


class Registering:
    """An engine. refusals: how often Flower does not answer first."""

    def __init__(self, refusals: int = 0) -> None:
        self.names: list[str] = []
        self.refusals = refusals

    def __call__(self, *_: object) -> "Registering":
        return self

    def __enter__(self) -> "Registering":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def register(self, _: Path, name: str) -> bool:
        self.refusals -= 1
        if self.refusals >= 0:
            raise RunError("`flwr supernode` was refused")
        self.names.append(name)
        return True


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    def start(server: ServerFile, meanwhile: Callable[[], object], *looks: Callable[[], object], refusals: int = 0) -> list[str]:
        engine = Registering(refusals)
        monkeypatch.setattr(command, "check_free", lambda *_: None)
        monkeypatch.setattr(command, "Service", Starting(meanwhile, list(looks)))
        monkeypatch.setattr(command, "Engine", engine)
        command.server_start(server.path)
        return engine.names

    return start


def nothing() -> None:
    pass


def test_a_site_that_is_added_while_the_server_starts_is_let_in(tmp_path: Path, serve: Callable[..., list[str]]) -> None:
    server, clinic, court = made(tmp_path), join(tmp_path, "clinic")[0], join(tmp_path, "court")[0]
    add_site(server, clinic)
    assert serve(server, lambda: add_site(server, court), nothing) == ["clinic", "court"]


def test_a_site_that_is_added_while_the_file_is_read_is_let_in_at_the_next_look(
    tmp_path: Path, serve: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, clinic, court = made(tmp_path), join(tmp_path, "clinic")[0], join(tmp_path, "court")[0]
    add_site(server, clinic)
    entered = list[int]()

    def read_slowly(of: ServerFile) -> dict[str, str]:
        keys = _keys(of)
        if len(entered) == 1:  # once the server runs
            add_site(of, court)
        entered.append(1)
        return keys

    monkeypatch.setattr(command, "_keys", read_slowly)
    assert serve(server, nothing, nothing) == ["clinic", "court"]


def test_a_server_that_does_not_answer_is_asked_again_and_a_slip_in_the_file_ends_nothing(
    tmp_path: Path, serve: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, clinic = made(tmp_path), join(tmp_path, "clinic")[0]
    add_site(server, clinic)
    assert serve(server, nothing, nothing, nothing, refusals=2) == ["clinic"]
    whole = server.federation.read_text()
    looks = (lambda: append(server, "name ="), nothing, server.federation.unlink, lambda: server.federation.write_text(whole))
    assert serve(server, nothing, *looks) == ["clinic"]
    told = capsys.readouterr().out
    assert told.count("is not TOML") == 1
    assert told.count("No such file") == 1


def test_a_certificate_that_was_moved_away_is_renewed_under_the_same_authority(
    tmp_path: Path, serve: Callable[..., list[str]]
) -> None:
    server = init_server(tmp_path / "renewed", "many", ["fl.example.org"], "127.0.0.1:9092", "127.0.0.1:9093", insecure=False)
    assert server.authority is not None
    add_site(server, join(tmp_path, "clinic")[0])
    old, authority = (server.certificates / "server.crt").read_bytes(), server.authority.read_bytes()
    for name in ("server.crt", "server.key"):
        (server.certificates / name).unlink()
    assert serve(server, nothing) == ["clinic"]
    new = (server.certificates / "server.crt").read_bytes()
    assert new != old
    assert b"fl.example.org" in ssl.PEM_cert_to_DER_cert(new.decode())
    assert server.authority.read_bytes() == authority


def test_a_server_whose_certificate_has_expired_starts_once_it_was_moved_away_as_the_error_says(
    tmp_path: Path, serve: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", -0.5)
        server = made(tmp_path)
    with pytest.raises(
        DeploymentError, match=r"server\.crt: the certificate has expired: valid from .* move server\.crt and server\.key"
    ):
        serve(server, lambda: pytest.fail("it starts"))
    for name in ("server.crt", "server.key"):
        (server.certificates / name).rename(tmp_path / name)
    assert serve(server, nothing) == []


LISTEN = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    open("listens", "w").close()
    time.sleep(60)
"""


def test_a_superlink_whose_command_was_killed_is_ended_before_its_ports_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    server = init_server(tmp_path / "server", "north", [], f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}", insecure=True)
    server.home.mkdir()
    monkeypatch.setattr(command, "superlink_command", lambda _: [sys.executable, "-c", ""])
    monkeypatch.setattr(command, "answers", lambda *_: True)
    monkeypatch.setattr(command, "Engine", Registering())
    monkeypatch.setattr(command, "LOOK_S", 0.1)
    listening = [sys.executable, "-c", LISTEN, str(port)]
    with Service("the SuperLink", listening, flower_environment(server.home), server.home, locked=server.home) as earlier:
        earlier.wait_until((server.home / "listens").exists, "its port", 30)
        with pytest.raises(DeploymentError, match=r"the SuperLink has ended \(exit status 0\)"):
            command.server_start(server.path)
        assert earlier.ended


def test_a_server_that_runs_is_not_ended_by_a_second_start(tmp_path: Path, serve: Callable[..., list[str]]) -> None:
    server = made(tmp_path)

    def start_again() -> None:
        with pytest.raises(DeploymentError, match=r"server\.toml: this server is already running here; end the other"):
            command.server_start(server.path)

    serve(server, start_again)


class Runs(Registering):
    """An engine of a server with two runs."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    def runs(self) -> list[dict[str, str]]:
        old = {"run-id": "11", "status": "finished:completed", "pending-at": "2026-11-01 10:00:00Z"}
        return [{"run-id": "12", "status": "running", "pending-at": "2026-11-02 10:00:00Z"}, old]

    def stop(self, run_id: str) -> None:
        self.stopped.append(run_id)

    def log(self, run_id: str) -> str:
        return f"the log of {run_id}"


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ServerFile, Runs]:
    server, engine = made(tmp_path), Runs()
    for number, name in ((12, "second"), (None, "never-begun")):
        folder = RunFolder(server.runs / name)
        folder.directory.mkdir(parents=True)
        folder.write("run.json", {"name": name, "status": "running"} | ({"flower_run_id": str(number)} if number else {}))
    monkeypatch.setattr(command, "answers", lambda *_: True)
    monkeypatch.setattr(command, "Engine", engine)
    return server, engine


def test_the_runs_of_a_server_are_listed_with_their_folders(running: tuple[ServerFile, Runs]) -> None:
    listed = command.server_runs(running[0].path)["runs"]
    assert [(run["id"], run["folder"], run["status"]) for run in listed] == [("12", "second", "running"), ("11", "", "completed")]


@pytest.mark.parametrize("folder", ["three-sites-adapter-families-2022", "three-sites-adapter-families-2022" * 3, ""])
def test_the_id_of_a_run_is_whole_on_80_columns(
    folder: str, running: tuple[ServerFile, Runs], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = "17734388220001234567"
    row = {"run-id": number, "status": "finished:completed", "pending-at": "2026-11-01 10:00:00Z"}
    monkeypatch.setattr(Runs, "runs", lambda _: [row])
    monkeypatch.setattr(command, "_run_folders", lambda _: {number: folder})
    shown = CliRunner().invoke(app, ["server", "runs", str(running[0].path)], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    for whole in (number, folder[:32], "completed", "2026-11-01", "10:00"):
        assert whole in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80


@pytest.mark.parametrize(("named", "status"), [("second", "interrupted"), ("12", "interrupted"), ("11", "running")])
def test_a_run_is_stopped_by_its_folder_or_by_flowers_id(named: str, status: str, running: tuple[ServerFile, Runs]) -> None:
    server, engine = running
    number = command.server_stop(server.path, named)["id"]
    assert engine.stopped == [number] == ["11" if named == "11" else "12"]
    assert (RunFolder(server.runs / "second").read("run.json") or {})["status"] == status
    assert command.server_logs(server.path, named)["log"] == f"the log of {number}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_runs_of_a_real_server_are_listed_stopped_and_read(tmp_path: Path, least_backbone: Path) -> None:
    ports = [free_port(), free_port()]
    server = init_server(tmp_path / "server", "north", [], *(f"127.0.0.1:{port}" for port in ports), True)
    add_site(server, join(tmp_path, "clinic")[0])
    experiment = tmp_path / "x.toml"
    experiment.write_text(f'method = "adapter-fed"\nfederation = "none.toml"\nbackbone = "{least_backbone}"\nrounds = 1\n')

    def spawn(*arguments: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-c", "from fedlingua.desk.cli.app import main; main()"]
        return subprocess.Popen([*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listed() -> dict[str, str]:
        with contextlib.suppress(FedlinguaError):
            return {run["folder"]: run["status"] for run in command.server_runs(server.path)["runs"]}
        return {}

    def wait_for(*statuses: str) -> None:
        end = time.monotonic() + 400
        while sorted(listed().values()) != sorted(statuses) or "" in listed():
            assert time.monotonic() < end, listed()
            time.sleep(1)

    processes = [spawn("server", "start", str(server.path))]
    try:
        while not answers(control_address(server), None):
            time.sleep(0.2)
        processes += [spawn("run", str(experiment), "--server", str(server.path), "--seed", seed) for seed in ("1", "2")]
        wait_for("running", "running")
        one, other = listed()
        command.server_stop(server.path, one)
        wait_for("running", "stopped")
        assert "adapter-fed" in command.server_logs(server.path, other)["log"]
        assert (RunFolder(server.runs / one).read("run.json") or {})["status"] == "interrupted"
        command.server_stop(server.path, other)
        wait_for("stopped", "stopped")
        assert all(process.wait(120) for process in processes[1:])
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(120)
