"""A GPU that is not there is told before anything starts."""

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk import check_settings


def test_cuda_without_a_driver_is_refused_and_the_cpu_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_settings.sys, "platform", "linux")
    monkeypatch.setattr(check_settings, "_driver", lambda: False)
    with pytest.raises(ConfigError, match=r"device = 'cuda', but this machine has no GPU driver.*give device = 'cpu'"):
        check_settings.check_device("cuda")
    check_settings.check_device("cpu")
    monkeypatch.setattr(check_settings, "_driver", lambda: True)
    check_settings.check_device("cuda")
