"""COMET for real, in its own environment, with a tiny checkpoint of random weights: the same numbers as comet-score's."""

import json
import site
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import sha256
from fedlingua.evaluation.comet.environment import comet_python
from fedlingua.evaluation.comet.scores import check_comet, checked_model, comet_scores, signature
from fedlingua.evaluation.text_metrics import Translated
from tests.comet import needs_comet, tiny_checkpoint

pytestmark = pytest.mark.timeout(1800)  # the environment is made where it is not there yet

TEXT = Translated(
    [f"ein Satz {number} von vielen{' und mehr' * (number % 7)}" for number in range(40)],
    [f"a sentence {number} of many" for number in range(40)],
    [f"one sentence {number} of many{' and more' * (number % 7)}" for number in range(40)],
    "en",
)
OTHER = Translated(TEXT.sources[:5], TEXT.references[:5], TEXT.references[:5], "en")


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return tiny_checkpoint()


@pytest.fixture(scope="module")
def told() -> list[tuple[int, int]]:
    return []


@pytest.fixture(scope="module")
def scores(checkpoint, told):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", site.getsitepackages()[0])  # our own transformers are not let in, as by a worker of Ray's
        return _scored(checkpoint, told)


def _scored(checkpoint, told):
    return comet_scores(
        {"hospital": TEXT, "court": OTHER}, str(checkpoint), lambda words: None, lambda done, of: told.append((done, of))
    )


def test_segments_are_comet_scores(scores, checkpoint, tmp_path):
    for name, side in (("src", TEXT.sources), ("mt", TEXT.hypotheses), ("ref", TEXT.references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    command = [str(comet_python(print).with_name("comet-score")), "-s", "src", "-t", "mt", "-r", "ref", "--gpus", "0"]
    subprocess.run(
        [*command, "--model", str(checkpoint), "--to_json", "out.json", "--quiet", "--only_system"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (wanted,) = json.loads((tmp_path / "out.json").read_text()).values()
    assert scores[0]["hospital"][:, 0].tolist() == [one["COMET"] for one in wanted]
    assert len(set(scores[0]["hospital"][:, 0])) > 5


def test_a_corpus_scores_the_mean_of_its_segments(scores):
    counts = scores[0]["court"]
    assert counts.shape == (5, 2)
    total = counts.sum(axis=0)
    assert total[0] / total[1] == pytest.approx(np.mean(counts[:, 0]))


def test_progress_is_told_up_to_the_last_sentence(scores, told):
    done = [number for number, _ in told]
    assert done == sorted(done)
    assert told[-1] == (45, 45)
    assert len(told) > 2


def test_the_signature_names_version_model_and_checkpoint(scores, checkpoint):
    assert scores[1] == int(sha256(checkpoint)[:12], 16)
    assert signature(str(checkpoint), scores[1]) == f"Comet2.2.7|fp16|model.ckpt:{sha256(checkpoint)[:12]}|r1"
    assert signature("Unbabel/wmt22-comet-da", 255).split("|")[2] == "Unbabel/wmt22-comet-da:0000000000ff"


def test_a_model_that_cannot_be_had_is_told_with_what_to_do(monkeypatch):
    needs_comet()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"COMET model Unbabel/no-such-model is not on this machine .* path of a checkpoint"):
        check_comet("no-such-model", lambda words: None)


def test_a_checkpoint_has_its_file_and_its_parameters_beside_it(checkpoint, tmp_path):
    assert checked_model(str(checkpoint)) == str(checkpoint)
    assert checked_model("wmt22-comet-da") == "Unbabel/wmt22-comet-da"
    assert checked_model("own/model") == "own/model"
    with pytest.raises(ConfigError, match="there is no such checkpoint"):
        checked_model(str(tmp_path / "no.ckpt"))
    lone = tmp_path / "here" / "checkpoints" / "model.ckpt"
    lone.parent.mkdir(parents=True)
    lone.touch()
    with pytest.raises(ConfigError, match=r"hparams\.yaml is missing"):
        checked_model(str(lone))
