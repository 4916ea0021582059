"""What a machine has, and what is said where it has too little."""

import compileall
import os
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedlingua.common.errors import DeploymentError
from fedlingua.desk.check_result import Remark, run_check
from fedlingua.desk.doctor import machine
from fedlingua.desk.doctor.machine import (
    check_disk,
    check_gpu,
    check_memory,
    check_port,
    check_shared_memory,
    torch_build,
)

CPU, CUDA, ROCM = ("2.13.0+cpu", ""), ("2.13.0", "CUDA 13.0"), ("2.13.0", "ROCm 7.0")


def test_libraries_that_every_process_compiles_anew_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "some_library").mkdir()
    (tmp_path / "some_library" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    told = machine.check_bytecode(["some_library", "not_installed"])
    assert isinstance(told, Remark)
    assert "every process compiles some_library anew" in told
    assert "unset PYTHONDONTWRITEBYTECODE" in told
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    assert machine.check_bytecode(["some_library"]) == "some_library will be compiled by the first process that loads them"
    compileall.compile_dir(tmp_path, quiet=1)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert machine.check_bytecode(["some_library"]) == "the libraries are compiled"


def test_the_line_of_the_processors_says_whether_they_have_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, told in (({"avx512_bf16"}, "; native bf16"), ({"avx2"}, "no native bf16: precision = 'bf16' computes in fp32")):
        monkeypatch.setattr("fedlingua.common.devices.cpu_flags", lambda flags=flags: frozenset(flags))
        assert told in machine.check_cores()


def gpu(build: tuple[str, str], *devices: str, drivers: tuple[str, ...] = ()) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "torch_build", lambda: build)
        patch.setattr(machine, "torch_devices", lambda: list(devices))
        patch.setattr(machine, "DRIVERS", drivers)
        return check_gpu()


def test_a_machine_without_a_gpu_is_good() -> None:
    assert gpu(CPU) == "none; torch 2.13.0+cpu is built for CPUs alone: device = 'cpu'"
    assert not isinstance(gpu(CPU), Remark)


def test_a_gpu_that_torch_is_not_built_for_is_noted(tmp_path: Path) -> None:
    told = gpu(CPU, drivers=(str(tmp_path),))
    assert isinstance(told, Remark)
    assert "TORCH_INDEX=" in told


def test_gpus_are_told_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    names, entered = ["NVIDIA H100", "old"], list[int]()
    for name, answer in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "device": lambda number: entered.append(number) or nullcontext(),
        "get_device_name": lambda: names[entered[-1]],
        "mem_get_info": lambda: (70 * 10**9, 80 * 10**9),
        "is_bf16_supported": lambda including_emulation: names[entered[-1]] != "old",
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    memory = "70.00 GB of 80.00 GB free"
    devices = f"NVIDIA H100, {memory}, bf16; old, {memory}, no bf16, so precision = fp32"
    monkeypatch.setattr(machine, "torch_build", lambda: CUDA)
    assert check_gpu() == f"{devices}; torch 2.13.0 is built for CUDA 13.0"
    assert gpu(ROCM, "old") == "old; torch 2.13.0 is built for ROCm 7.0"


def test_a_build_for_gpus_that_sees_none_is_noted() -> None:
    told = gpu(CUDA)
    assert isinstance(told, Remark)
    assert told == "torch 2.13.0 is built for CUDA 13.0 and sees no GPU: device = 'cpu'"


@pytest.mark.parametrize(
    "error", [ImportError("libcudnn.so.9: cannot open"), RuntimeError("CUDA error: unknown error\nCompile with")]
)
def test_gpus_that_cannot_be_asked_are_wrong(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def devices() -> list[str]:
        raise error

    monkeypatch.setattr(machine, "torch_build", lambda: CUDA)
    monkeypatch.setattr(machine, "torch_devices", devices)
    found = run_check("gpu", check_gpu)
    assert not found.good
    assert found.text.startswith("torch 2.13.0 is built for CUDA 13.0, and cannot ask for GPUs (")
    assert str(error).splitlines()[0] in found.text
    assert "Compile with" not in found.text
    assert "check the driver" in found.text


def test_torchs_build_is_read_without_importing_it() -> None:
    import torch

    platforms = {f"CUDA {torch.version.cuda}": torch.version.cuda, f"ROCm {torch.version.hip}": torch.version.hip, "": True}
    assert torch_build() == (torch.__version__, next(name for name, built in platforms.items() if built))


def free(amount: int) -> SimpleNamespace:
    return SimpleNamespace(free=amount, available=amount, total=10**12)


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "not" / "there"
    for amount, note in ((10**10, False), (2 * 10**9, True)):
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder, amount=amount: free(amount))
        assert isinstance(check_disk(place), Remark) == note
        assert not isinstance(check_disk(place, little=10**9), Remark)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: free(10**8))
    with pytest.raises(DeploymentError, match=r"100\.00 MB are free in .*; wanted 1\.00 GB"):
        check_disk(place)
    assert not place.exists()


def test_a_place_that_cannot_be_written_to_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "access", lambda place, mode: False)  # whoever runs the tests may be allowed everything
    with pytest.raises(DeploymentError, match="cannot be written to"):
        check_disk(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(machine.os, "access", os.access)
    with pytest.raises(DeploymentError, match="file cannot be written to"):
        check_disk(tmp_path / "file")


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for amount, note in ((10**10, False), (2 * 10**9, True)):
        monkeypatch.setattr(machine.psutil, "virtual_memory", lambda amount=amount: free(amount))
        assert isinstance(check_memory(), Remark) == note
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: free(10**8))
    with pytest.raises(DeploymentError, match=r"100\.00 MB of 1000\.00 GB are free|100\.00 MB of 1\.00 TB are free"):
        check_memory()


def test_little_shared_memory_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: free(64 * 2**20))
    assert isinstance(check_shared_memory(tmp_path), Remark)
    assert isinstance(check_shared_memory(tmp_path / "none"), Remark)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_port_that_is_taken_is_noted(listening: int) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        told = check_port(f"{host}:{listening}", "where sites join")
        assert isinstance(told, Remark)
        assert "the port is in use" in told


def test_a_free_port_is_good_and_stays_free(listening: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        assert not isinstance(check_port(f"127.0.0.1:{port}", "where sites join"), Remark)
