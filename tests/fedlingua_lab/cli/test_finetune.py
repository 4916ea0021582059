"""`fedlingua finetune` on synthetic text, from an encoder's directory to a folder with scores and a model that loads."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
from typer.testing import CliRunner

from fedlingua.desk.cli.app import app
from tests.encoders import build_bert, build_xlmr, write_pairs, write_tagging


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    build_xlmr(folder / "xlmr")
    build_bert(folder / "bert")
    write_tagging(folder / "drugs")
    write_pairs(folder / "relations")
    write_pairs(folder / "assertions", with_tail=False)
    return folder


def finetune(made, task, encoder, data, to, *options):
    where = ["--encoder", str(made / encoder), "--data", str(made / data), "--to", str(to)]
    return CliRunner().invoke(app, ["finetune", task, *where, "--learning-rate", "5e-3", *options])


def scores(folder):
    return json.loads((folder / "finetuning.json").read_text())


@pytest.mark.parametrize("encoder", ["xlmr", "bert"])
def test_ner_learns_a_closed_list_of_drugs(made, tmp_path, encoder):
    result = finetune(made, "ner", encoder, "drugs", tmp_path / "out", "--epochs", "4")
    assert result.exit_code == 0, result.output
    assert "epoch 4 of 4  train loss" in result.output
    found = scores(tmp_path / "out")
    assert (found["task"], found["data"], found["seed"], found["encoder"]["name"]) == ("ner", "drugs", 2022, encoder)
    assert len(found["encoder"]["fingerprint"]) == 64
    for split in ("dev", "test"):
        assert found[split]["micro_f1"] > 0.9
        assert found[split]["micro_f1"] == found[split]["strict_f1"] <= found[split]["type_f1"]
        assert {"macro_f1", "weighted_f1"} < set(found[split])
        assert found[split]["by_label"]["Drug"]["support"] == found["sizes"][split]["entities"]["Drug"]
    assert found["sizes"]["train"]["sentences"] == 120
    assert {"torch", "transformers", "nervaluate"} < set(found["versions"])
    assert "drugs" in result.output
    assert "Drug " in result.output


def test_predictions_are_the_test_split_word_for_word_and_the_model_loads(made, tmp_path):
    finetune(made, "ner", "xlmr", "drugs", tmp_path / "out", "--epochs", "1")
    rows = [line.split("\t") for line in (tmp_path / "out" / "predictions.tsv").read_text().split("\n")]
    gold = (made / "drugs" / "test.tsv").read_text().split("\n")
    assert ["\t".join(row[:2]) for row in rows if len(row) == 3] == [line for line in gold if line]
    assert all(row[2] in ("O", "B-Drug", "I-Drug") for row in rows if len(row) == 3)
    model = AutoModelForTokenClassification.from_pretrained(
        tmp_path / "out" / "model", use_safetensors=True, trust_remote_code=False
    )
    assert model.config.label2id == {"O": 0, "B-Drug": 1, "I-Drug": 2}


def test_the_best_epoch_on_dev_is_kept(made, tmp_path):
    finetune(made, "ner", "xlmr", "drugs", tmp_path / "out", "--epochs", "3")
    found = scores(tmp_path / "out")
    f1s = [epoch["dev_micro_f1"] for epoch in found["epochs"]]
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    assert f1s[found["best_epoch"] - 1] == max(f1s) == found["dev"]["micro_f1"]


def test_training_that_diverges_is_an_error_and_not_a_score(made, tmp_path):
    result = finetune(made, "ner", "xlmr", "drugs", tmp_path / "out", "--learning-rate", "1e30")
    assert "epoch 1 diverged at the learning rate 1e+30; give a smaller --learning-rate" in str(result.exception)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_same_seed_gives_the_same_scores_and_weights(made, tmp_path):
    for name in ("one", "two"):
        assert finetune(made, "ner", "xlmr", "drugs", tmp_path / name, "--epochs", "2", "--seed", "7").exit_code == 0
    one, two = scores(tmp_path / "one"), scores(tmp_path / "two")
    assert (one["dev"], one["test"]) == (two["dev"], two["test"])
    assert [epoch["train_loss"] for epoch in one["epochs"]] == [epoch["train_loss"] for epoch in two["epochs"]]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_long_sentences_in_short_windows_are_learned_too(made, tmp_path):
    result = finetune(made, "ner", "xlmr", "drugs", tmp_path / "out", "--epochs", "4", "--max-tokens", "8")
    assert result.exit_code == 0, result.output
    found = scores(tmp_path / "out")
    assert found["settings"]["max_tokens"] == 8
    assert found["test"]["micro_f1"] > 0.9


def test_ner_reads_the_layout_of_i2b2(made, tmp_path):
    data = tmp_path / "notes"
    for split in ("train", "devel", "test"):
        (data / split).mkdir(parents=True)
        for number in range(6):
            (data / split / f"{number}.txt").write_text("the patient took aspirin\nfor days\n")
            (data / split / f"{number}.entries").write_text('m="aspirin" 1:3 1:3||du="for days" 2:0 2:1||r="nm"\n')
    options = ("--layout", "i2b2", "--epochs", "12")
    result = finetune(made, "ner", "xlmr", data, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    found = scores(tmp_path / "out")
    assert found["settings"]["layout"] == "i2b2"
    assert found["sizes"]["test"]["entities"] == {"du": 6, "m": 6}
    assert found["test"]["micro_f1"] == 1.0


@pytest.mark.parametrize(("data", "labels"), [("relations", ["causes", "treats"]), ("assertions", ["absent", "present"])])
def test_pairs_learn_relations_and_assertions(made, tmp_path, data, labels):
    result = finetune(made, "pairs", "xlmr", data, tmp_path / "out", "--epochs", "5")
    assert result.exit_code == 0, result.output
    found = scores(tmp_path / "out")
    assert found["labels"] == labels
    assert found["test"]["accuracy"] == pytest.approx(found["test"]["micro_f1"])
    assert min(found["test"][name] for name in ("micro_f1", "macro_f1", "weighted_f1")) > 0.9
    assert found["sizes"]["test"]["texts"] == 30
    assert found["sizes"]["test"]["shortened"] == 0
    assert len((tmp_path / "out" / "predictions.tsv").read_text().splitlines()) == 30
    # The markers are part of what was saved.
    directory = tmp_path / "out" / "model"
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    model = AutoModelForSequenceClassification.from_pretrained(directory, use_safetensors=True, trust_remote_code=False)
    assert tokenizer.convert_tokens_to_ids("[/E2]") == len(tokenizer) - 1 < model.config.vocab_size


def test_a_folder_that_holds_files_is_refused_before_anything_is_read(made, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    result = finetune(made, "ner", "nowhere", "nowhere", tmp_path)
    assert result.exit_code == 1
    assert "already holds files" in str(result.exception)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_encoder_may_go_by_the_name_of_a_recipe_that_was_trained_here(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    build_xlmr(tmp_path / "cache" / "fedlingua" / "backbones" / "ours")
    where = ["--data", str(made / "relations"), "--epochs", "1"]
    result = CliRunner().invoke(app, ["finetune", "pairs", "--encoder", "ours", *where])
    assert result.exit_code == 0, result.output
    assert scores(tmp_path / "runs" / "pairs-relations-ours-2022")["encoder"]["name"] == "ours"
    nowhere = CliRunner().invoke(app, ["finetune", "pairs", "--encoder", "theirs", *where])
    assert "--encoder theirs: " in str(nowhere.exception)
    assert "no recipe of this name was trained here" in str(nowhere.exception)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_learning_rate_that_is_none_is_refused(made, tmp_path, value):
    result = finetune(made, "ner", "xlmr", "drugs", tmp_path / "out", "--learning-rate", value)
    assert "wanted a number above 0" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_the_default_folder_is_named_by_task_data_encoder_and_seed(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = ["--encoder", str(made / "xlmr"), "--data", str(made / "relations")]
    assert CliRunner().invoke(app, ["finetune", "pairs", *where, "--epochs", "1", "--seed", "3"]).exit_code == 0
    assert (tmp_path / "runs" / "pairs-relations-xlmr-3" / "finetuning.json").is_file()


def test_the_result_holds_no_text(made, tmp_path):
    finetune(made, "pairs", "xlmr", "relations", tmp_path / "out", "--epochs", "1")
    text = (tmp_path / "out" / "finetuning.json").read_text()
    assert not any(word in text for word in ("aspirin", "heparin", str(made)))


def test_bf16_on_a_cpu_without_it_is_fp32_and_said_so(made, tmp_path, monkeypatch):
    monkeypatch.setattr("fedlingua.common.devices.cpu_flags", frozenset)
    result = finetune(made, "ner", "bert", "drugs", tmp_path / "out", "--epochs", "1", "--precision", "bf16")
    assert result.exit_code == 0, result.output
    assert "this CPU has no native bf16 and computes in fp32" in " ".join(result.output.split())
    assert scores(tmp_path / "out")["settings"]["precision"] == "fp32"


@pytest.mark.usefixtures("native_bf16")
def test_bf16_is_another_arithmetic_on_float32_weights(made, tmp_path):
    for precision in ("fp32", "bf16"):
        result = finetune(made, "ner", "bert", "drugs", tmp_path / precision, "--epochs", "1", "--precision", precision)
        assert result.exit_code == 0, result.output
    fp32, bf16 = (load_file(tmp_path / precision / "model" / "model.safetensors") for precision in ("fp32", "bf16"))
    assert all(tensor.dtype == torch.float32 for tensor in bf16.values())
    assert not all(torch.equal(fp32[name], bf16[name]) for name in fp32)
