"""The gate: no bundle is unpacked before its hash was found in the site's list, and nothing of this install outlives it."""

import importlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import psutil
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.app.metadata import Metadata
from flwr.supercore.exit import add_exit_handler
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run

from fedlingua.common.errors import DeploymentError, ExchangeError
from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.deployment import gate
from fedlingua.desk.deployment.audited import verify
from fedlingua.desk.deployment.site_setup import approve

# By import_module, since their packages carry functions of the same names.
flower_program: Any = importlib.import_module("flwr.supernode.cli.flwr_clientapp")
flower_runtime: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")


def bundle(**files: str) -> bytes:
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name, text in {**files, ".info/CONTENT": "hashes"}.items():
            archive.writestr(ZipInfo(name), text)
    return content.getvalue()


GOOD, BAD = bundle(app="an approved bundle", more="of it"), bundle(app="another bundle")
RUN = SimpleNamespace(fab_id="fedlingua/fedlingua", fab_version="0.1.0")


def ours() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "fedlingua"}


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """The gate forgets this project's modules; the tests after this one need the very same objects again."""
    before = ours()
    yield
    for name in ours():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What reached Flower's own `install_from_fab`, in a site that has approved one bundle."""
    approve(tmp_path / "approved.txt", bundle_hash(GOOD))
    monkeypatch.setenv(gate.APPROVALS, str(tmp_path / "approved.txt"))
    monkeypatch.setenv(gate.REFUSED, str(tmp_path / "bundles"))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    calls: list[tuple[Any, ...]] = []

    def install(content: bytes, *arguments: Any, **options: Any) -> Path:
        """As Flower's, which leaves a folder as it is once it exists."""
        calls.append((content, arguments, options))
        place = flower_runtime.get_project_dir(RUN.fab_id, RUN.fab_version, bundle_hash(content))
        if not place.exists():
            ZipFile(io.BytesIO(content)).extractall(place)
        return place

    monkeypatch.setattr(flower_runtime, "install_from_fab", install)
    return calls


def taken_over(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[], None], told: str = bundle_hash(GOOD), run: SimpleNamespace = RUN
) -> None:
    """Go through the gate; `then` runs in the place of Flower's program, which has pulled a bundle under the hash `told`."""
    fab = SimpleNamespace(hash_str=told, content=GOOD)
    monkeypatch.setattr(flower_runtime, "pull_task_input", lambda client: ("message", "context", run, fab))

    def flower() -> None:
        assert flower_runtime.pull_task_input("client")[0] == "message"
        then()

    monkeypatch.setattr(flower_program, "flwr_clientapp", flower)
    gate.main()


def test_flower_calls_what_the_gate_replaces() -> None:
    """As `run_clientapp` does, by the name in its own module, before it loads the app."""
    replaced = {"install_from_fab", "pull_task_input", "get_project_dir", "flwr_exit", "start_parent_process_monitor"}
    assert replaced <= set(flower_runtime.run_clientapp.__code__.co_names)
    assert flower_runtime.run_clientapp.__globals__ is vars(flower_runtime)


def test_an_approved_bundle_is_passed_on_with_all_that_flower_says(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    def flower() -> None:
        place = flower_runtime.install_from_fab(GOOD, None, skip_prompt=True)
        assert (place / "app").read_text() == "an approved bundle"

    taken_over(monkeypatch, flower)
    assert installed == [(GOOD, (None,), {"skip_prompt": True})]
    assert not (tmp_path / "bundles").exists()


def test_another_bundle_is_refused_before_it_is_unpacked_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    def flower() -> None:
        with pytest.raises(DeploymentError, match="has not approved the bundle"):
            flower_runtime.install_from_fab(BAD, skip_prompt=True)

    taken_over(monkeypatch, flower)
    assert installed == []
    assert (tmp_path / "bundles" / f"{bundle_hash(BAD)}.fab").read_bytes() == BAD


def test_the_list_is_read_anew_for_each_bundle(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    def flower() -> None:
        approve(tmp_path / "approved.txt", bundle_hash(BAD))
        flower_runtime.install_from_fab(BAD)

    taken_over(monkeypatch, flower, told=bundle_hash(BAD))
    assert [content for content, _, _ in installed] == [BAD]


def test_a_bundle_under_another_ones_hash_is_not_run(monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]]) -> None:
    """Flower unpacks the content, and loads by the hash that the SuperLink says: maybe of a bundle that was struck off the list."""

    def flower() -> None:
        with pytest.raises(DeploymentError, match="came under the hash"):
            flower_runtime.install_from_fab(GOOD)

    taken_over(monkeypatch, flower, told=bundle_hash(BAD))
    assert installed == []


def test_a_request_that_would_fill_the_memory_is_refused_before_it_does(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """An array may list one chunk a thousand times; here it may not be larger than the limit, which is lowered to a megabyte."""
    record = ArrayRecord({"a": Array(np.ones(500_000, np.float32))})
    contents = {name: each.deflate() for name, each in get_all_nested_objects(record).items()}
    monkeypatch.setattr(gate, "SHARE_OF_MEMORY", 1e6 / psutil.virtual_memory().total)
    monkeypatch.setattr(
        flower_runtime, "pull_task_input", lambda client: inflate_object_from_contents(record.object_id, contents)
    )

    def flower() -> None:
        with pytest.raises(ExchangeError, match=r"its arrays are of 2000128 bytes; wanted at most (999999|1000000)"):
            flower_runtime.pull_task_input("client")

    monkeypatch.setattr(flower_program, "flwr_clientapp", flower)
    gate.main()
    (line,), _ = verify(tmp_path)
    assert line["refused"].startswith("its arrays are of")


@pytest.mark.parametrize(
    "run", [{"fab_version": "0.1.0.{}/../../../../models/x"}, {"fab_version": "0.2.0"}, {"fab_id": "fedlingua/other"}]
)
def test_a_bundle_that_would_be_loaded_from_elsewhere_is_not_run(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], run: dict[str, str]
) -> None:
    """Flower loads from a folder that the run's id and version name, which the SuperLink says."""

    def flower() -> None:
        with pytest.raises(DeploymentError, match="which it is not; it is not run"):
            flower_runtime.install_from_fab(GOOD)

    changed = {name: text.format(bundle_hash(GOOD)[:8]) for name, text in run.items()}
    taken_over(monkeypatch, flower, run=SimpleNamespace(**{**vars(RUN), **changed}))


@pytest.mark.parametrize("left", [{}, {"app": "an appr"}, {"app": "an approved bundle"}])
def test_a_bundle_of_which_a_kill_left_a_part_is_unpacked_again(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path, left: dict[str, str]
) -> None:
    place = tmp_path / "flower" / "apps" / f"fedlingua.fedlingua.0.1.0.{bundle_hash(GOOD)[:8]}"
    place.mkdir(parents=True)
    for name, text in left.items():
        (place / name).write_text(text)

    def flower() -> None:
        assert flower_runtime.install_from_fab(GOOD) == place
        assert [(place / name).read_text() for name in ("app", "more")] == ["an approved bundle", "of it"]
        flower_runtime.install_from_fab(GOOD)

    taken_over(monkeypatch, flower)
    assert len(installed) == 2


def test_a_list_that_cannot_be_read_lets_nothing_through_and_names_no_place(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    (tmp_path / "approved.txt").write_text("no hash at all\n")

    def flower() -> None:
        with pytest.raises(DeploymentError) as refused:
            flower_runtime.install_from_fab(GOOD)
        assert str(tmp_path) not in str(refused.value)

    taken_over(monkeypatch, flower)
    assert installed == []


def test_a_program_that_can_be_run_again_watches_its_parent_once_and_leaves_only_after_an_error(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]]
) -> None:
    done: list[str] = []
    for name in ("pull_task_input", "flwr_exit", "start_parent_process_monitor"):
        monkeypatch.setattr(flower_runtime, name, lambda *given, name=name, **_: done.append(f"{name} {given}"))

    def flower(code: int) -> None:
        flower_runtime.start_parent_process_monitor(7)
        add_exit_handler(lambda: done.append("handled"))
        flower_runtime.flwr_exit(code, event_type=None)

    monkeypatch.setattr(flower_program, "flwr_clientapp", flower)
    program: Any = gate.prepared(lambda pull, client: pull(client))
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            program(0)
        assert (type(ended.value), ended.value.code) == (gate.AnsweredError, 0)
    with pytest.raises(SystemExit):
        program(200)
    assert done[:4] == ["start_parent_process_monitor (7,)", "handled", "handled", "flwr_exit (200,)"]


def test_no_module_of_this_install_is_left_when_flower_takes_over(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]]
) -> None:
    importlib.import_module("fedlingua.exchange.protocol")
    left: list[str] = ["not reached"]

    def flower() -> None:
        left[:] = ours()

    taken_over(monkeypatch, flower)
    assert left == []


def test_without_flowers_function_nothing_runs(monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]]) -> None:
    monkeypatch.delattr(flower_runtime, "install_from_fab")
    with pytest.raises(AttributeError, match="install_from_fab"):
        taken_over(monkeypatch, lambda: pytest.fail("Flower took over"))


@pytest.mark.parametrize("variable", [gate.APPROVALS, gate.REFUSED])
def test_without_its_environment_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], variable: str
) -> None:
    monkeypatch.delenv(variable)
    with pytest.raises(KeyError, match=variable):
        taken_over(monkeypatch, lambda: pytest.fail("Flower took over"))


def test_the_program_goes_by_flowers_name_and_hands_its_arguments_on(tmp_path: Path) -> None:
    gate.write_programs(tmp_path / "programs")
    gate.write_programs(tmp_path / "programs")
    program = tmp_path / "programs" / "flwr-clientapp"
    source = str(Path(gate.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": source, gate.APPROVALS: "a", gate.REFUSED: "b"}
    done = subprocess.run([program, "--help"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--runtime-api-address" in done.stdout


def test_programs_of_every_other_kind_of_task_refuse(tmp_path: Path) -> None:
    """A SuperLink may call a run an AgentApp, or what a later Flower knows: none of these starts Flower's own program."""
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    gate.write_programs(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(TASK_TYPE_TO_COMMAND.values())
    others = set(TASK_TYPE_TO_COMMAND.values()) - {"flwr-clientapp"}
    assert len(others) >= 3
    for name in others:
        done = subprocess.run([tmp_path / name, "--token", "x"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (1, "")
        assert "this site runs ClientApps only" in done.stderr


def test_what_flower_has_pulled_is_the_same_for_another_process() -> None:
    arrays = ArrayRecord({"a": Array(np.arange(6, dtype=np.float32).reshape(2, 3))})
    content = RecordDict({"arrays": arrays, "task": ConfigRecord({"round": 3})})
    message = make_message(Metadata(7, "id", 1, 2, "", "", 1.5, 3600.0, "train"), content)
    context = Context(7, 2, {"site-file": "x.toml"}, RecordDict({"kept": MetricRecord({"loss": 0.5})}), {"rounds": 4})
    run, fab = Run.create_empty(7), Fab("hash", b"\x00bundle", {"by": "key"})
    file = io.BytesIO()
    gate.store((message, context, run, fab), file)
    file.seek(0)
    again = gate.stored(file)
    assert again[0].metadata == message.metadata
    assert again[0].content == message.content
    assert again[1:] == (context, run, fab)


def test_a_folder_whose_programs_would_not_be_started_is_refused(tmp_path: Path) -> None:
    """With a colon in its path, the SuperNode would find Flower's own program behind it on the PATH."""
    for folder, path in ((tmp_path / "ward 3: cardiology", ""), (tmp_path / "fine", str(tmp_path))):
        with pytest.raises(DeploymentError, match="bundles would run unchecked"):
            gate.write_programs(folder, path=path)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("Das Kind heisst Anna"), "<class 'ValueError'>; the site's log has the rest"),
        (
            DeploymentError("this site has not approved it"),
            "<class 'fedlingua.common.errors.DeploymentError'>:<'this site has not",
        ),
    ],
)
def test_what_flower_answers_itself_is_in_the_log_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, installed: list[tuple[Any, ...]], tmp_path: Path, error: Exception, told: str
) -> None:
    """As its program makes of an exception that the app has not caught: of a message's kind that the app does not know."""
    message = make_message(Metadata(7, "id", 1, 2, "", "", 1.5, 3600.0, "query.foo"), RecordDict())
    fab, pushed = SimpleNamespace(hash_str=bundle_hash(GOOD), content=GOOD), list[str]()
    monkeypatch.setattr(flower_runtime, "pull_task_input", lambda client: (message, "context", "run", fab))
    monkeypatch.setattr(flower_runtime, "push_message", lambda client, reply, context: pushed.append(reply.error.reason))

    def flower() -> None:
        flower_runtime.pull_task_input("client")
        reason = f"{type(error)}:<'{error}'>"
        code = flower_runtime.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        flower_runtime.push_message("client", Message(Error(code, reason), reply_to=message), "context")

    monkeypatch.setattr(flower_program, "flwr_clientapp", flower)
    gate.main()
    (line,), broken = verify(tmp_path)
    assert (pushed, broken) == ([line["refused"]], "")
    assert line["refused"].startswith(told)
    assert (line["asked"], line["bundle"]) == ("query.foo", bundle_hash(GOOD))
