"""A TranslationClient by itself, as its docstring and docs/guides/client.md show it: no server, no run, no federation file."""

import inspect
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.translation import TranslationClient
from fedlingua.common.errors import ConfigError
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


@pytest.mark.parametrize("options", [{"tensor_set": "controllers"}, {"own_model": "mr-mtl"}])
def test_what_a_client_keeps_to_itself_is_there_in_the_next_round(
    options: dict[str, str], tiny_backbone: Path, tmp_path: Path
) -> None:
    """A round more changes what stays, and what is measured: with the same tensors received, a client that forgot would repeat itself."""
    pairs = [("eins", "un"), ("zwei", "deux")]
    asked: dict[str, Any] = {
        "folder": tmp_path,
        "backbone": str(tiny_backbone),
        "adapter_dim": 4,
        "learning_rate": 0.01,
        **options,
    }
    client = TranslationClient.of_pairs(pairs, "de-fr", pairs, **asked)
    parameters = client.get_parameters({})
    client.fit(parameters, {"round": 1})
    first, _, _ = client.evaluate(parameters, {})
    client.fit(parameters, {"round": 2})
    second, _, _ = client.evaluate(parameters, {})
    assert second != first


def test_a_client_keeps_its_optimizers_state(tiny_backbone: Path, tmp_path: Path) -> None:
    """From the same tensors, round 2 is another one where round 1 left moments, and the same where it left none."""

    def second_update(state: str, rounds: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
        asked: dict[str, Any] = {"backbone": str(tiny_backbone), "adapter_dim": 4, "optimizer_state": state}
        client = TranslationClient.of_pairs(
            [("eins", "un"), ("zwei", "deux")], "de-fr", folder=tmp_path / f"{state}{rounds}", **asked
        )
        return [client.fit(client.get_parameters({}), {"round": number})[0] for number in rounds][-1]

    kept, fresh = (
        [np.array_equal(*both) for both in zip(second_update(state, (1, 2)), second_update(state, (2,)), strict=True)]
        for state in ("kept", "fresh")
    )
    assert all(fresh)
    assert not all(kept)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer_state": "keept"}, "optimizer-state = 'keept' is not known; did you mean 'kept'"),
        ({"adapter_dim": -4}, "adapter.dim = -4"),
        ({"round": 2}, "there is no such key; did you mean 'rounds'"),
    ],
)
def test_options_are_checked_as_those_of_a_run(options: dict[str, Any], words: str, tiny_backbone: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        TranslationClient.of_pairs([("eins", "un")], "de-fr", backbone=str(tiny_backbone), **options)


def test_an_options_name_is_its_key(tiny_backbone: Path, tmp_path: Path) -> None:
    client = TranslationClient.of_pairs(
        [("eins", "un")], "de-fr", folder=tmp_path, backbone=str(tiny_backbone), memory_micro_tokens=64
    )
    assert client.settings.micro_tokens == 64
