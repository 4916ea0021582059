"""A GPU that is not there is told before anything starts."""

import pytest

from fedlingua.common import devices
from fedlingua.common.errors import ConfigError


def test_cuda_without_a_driver_is_refused_and_the_cpu_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.sys, "platform", "linux")
    monkeypatch.setattr(devices, "_driver", lambda: False)
    with pytest.raises(ConfigError, match=r"device = 'cuda', but this machine has no GPU driver.*give device = 'cpu'"):
        devices.check_device("cuda")
    devices.check_device("cpu")
    monkeypatch.setattr(devices, "_driver", lambda: True)
    devices.check_device("cuda")
