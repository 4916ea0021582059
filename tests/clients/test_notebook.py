"""A TranslationClient by itself, as docs/guides/client.md shows it: no server, no run, no federation file."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.translation import TranslationClient
from fedlingua.common.errors import ConfigError, ExchangeError
from tests.pages import block


def test_the_guides_ten_lines_train(tiny_backbone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = block("docs/guides/client.md", 'python title="notebook"')
    assert len([line for line in lines.splitlines() if line]) <= 10
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


def test_what_a_client_keeps_to_itself_is_there_in_the_next_round(tiny_backbone: Path, tmp_path: Path) -> None:
    """A round more changes what stays, and what is measured: with the same tensors received, a client that forgot would repeat itself."""
    pairs = [("eins", "un"), ("zwei", "deux")]
    asked: dict[str, Any] = {
        "folder": tmp_path,
        "backbone": str(tiny_backbone),
        "adapter_dim": 4,
        "learning_rate": 0.01,
        "tensor_set": "controllers",
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


@pytest.fixture
def client(tiny_backbone: Path, tmp_path: Path) -> TranslationClient:
    pairs = [("eins", "un"), ("zwei", "deux")]
    asked: dict[str, Any] = {"backbone": str(tiny_backbone), "adapter_dim": 4}
    return TranslationClient.of_pairs(pairs, "de-fr", pairs, tmp_path, **asked)


@pytest.mark.parametrize("key", ["server_round", "lr", "proximal_mu"])
def test_a_key_that_a_client_does_not_know_is_refused(client: TranslationClient, key: str) -> None:
    for call in (client.fit, client.evaluate):
        with pytest.raises(ExchangeError, match=f"config has {key}.*may have learning-rate, local-epochs, proximal-mu, round"):
            call(client.get_parameters({}), {"round": 2, key: 1})


def test_a_wrong_array_is_refused_by_name(client: TranslationClient) -> None:
    good = client.get_parameters({})
    name, shape = client.trainable.tensor_set.names[0], good[0].shape
    with pytest.raises(ExchangeError, match=f"got {len(good) - 1} arrays; wanted {len(good)}, as get_parameters returns them"):
        client.fit(good[1:], {})
    with pytest.raises(ExchangeError, match=re.escape(f"tensor {name!r} has shape (3,); wanted {shape}")):
        client.fit([np.zeros(3), *good[1:]], {})
    with pytest.raises(ExchangeError, match=f"tensor {name!r} holds NaN or infinity"):
        client.evaluate([good[0] * np.nan, *good[1:]], {})


def test_arrays_may_be_float64(client: TranslationClient) -> None:
    good = client.get_parameters({})
    assert client.evaluate([array.astype(np.float64) for array in good], {})[0] == client.evaluate(good, {})[0]


def test_without_dev_text_there_is_nothing_to_measure(tiny_backbone: Path, tmp_path: Path) -> None:
    client = TranslationClient.of_pairs([("eins", "un")], "de-fr", folder=tmp_path, backbone=str(tiny_backbone), adapter_dim=4)
    with pytest.raises(ExchangeError, match="of_pairs was given no dev"):
        client.evaluate(client.get_parameters({}), {})


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
