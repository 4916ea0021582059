"""A TranslationClient by itself, as its docstring and docs/guides/client.md show it: no server, no run, no federation file."""

import inspect
import textwrap
from pathlib import Path

import numpy as np
import pytest

from clients.translation import TranslationClient
from tests.pages import block


def test_the_docstrings_ten_lines_train(tiny_backbone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = textwrap.dedent(inspect.cleandoc(TranslationClient.__doc__ or "").partition("In a notebook:\n\n")[2])
    assert len([line for line in lines.splitlines() if line]) <= 10
    assert block("docs/guides/client.md", 'python title="notebook"').strip() == lines.strip()
    given: dict[str, object] = {}
    exec(lines.replace('"demo"', repr(str(tiny_backbone))), given)
    assert float(str(given["after"])) < float(str(given["before"]))
    assert "after 2 examples a round" in capsys.readouterr().out


def test_what_fit_returns_is_its_callers_own(tiny_backbone: Path, tmp_path: Path) -> None:
    pairs = [("eins", "un"), ("zwei", "deux")]
    client = TranslationClient.of_pairs(pairs, "de-fr", folder=tmp_path, backbone=str(tiny_backbone), adapter_dim=4)
    parameters, number, sums = client.fit(client.get_parameters({}), {})
    assert (number, sums["num_examples"], sums["steps"]) == (2, 2, 1)
    assert [array.shape for array in parameters] == [spec.shape for spec in client.trainable.tensor_set.specs]
    parameters[0] += 1  # writable, and memory of its own
    again, *_ = client.fit(client.get_parameters({}), {})
    assert not np.array_equal(again[0], parameters[0])
    assert np.array_equal(again[1], parameters[1])
