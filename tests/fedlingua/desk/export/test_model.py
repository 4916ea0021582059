"""What is taken away is what the site uses: the same numbers and translations by whatever loads it, and nothing else in the folder."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from fedlingua.backbones.codec import Codec
from fedlingua.common.errors import ConfigError, FedlinguaError, RunError
from fedlingua.common.languages import Direction
from fedlingua.desk.export.adapter import load_adapter, read_adapter
from fedlingua.desk.export.forms import FILE, check_form, check_place
from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.translator import Translator
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua_demo import phrasebook
from tests.fedlingua.conftest import RunOf
from tests.translated_runs import translator_of_direction, translator_of_site

SENTENCES = ["Guten Morgen.", "Der Arzt liest ein Buch.", "Die Frau kauft heute das Haus.", "Das Kind sieht den Hund im Garten."]
TOKENIZER = {"sentencepiece.bpe.model", "tokenizer_config.json", "vocab.json"}
TOLD = {"README.md", FILE}


def logits(model: PreTrainedModel, codec: Codec) -> torch.Tensor:
    """Of one target after each of the sentences, where the source is German."""
    (target,) = codec.encode_source(["Bonjour, le livre."], Direction("fr", "fr"), 32)
    rows = []
    with torch.no_grad():
        for ids in codec.encode_source(SENTENCES, Direction("de", "de"), 32):
            rows.append(model.eval()(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[2, *target]])).logits[0])
    return torch.stack(rows)


def by_transformers_alone(model: PreTrainedModel, folder: Path, **how: int) -> list[str]:
    """One sentence after the other, with the tokenizer of the folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for sentence in SENTENCES:
        inputs = tokenizer([sentence], return_tensors="pt", truncation=True, max_length=32)
        ids = model.eval().generate(**inputs, **how)
        found.append(tokenizer.batch_decode(ids, skip_special_tokens=True)[0].strip())
    return found


def one_by_one(translator: Translator) -> list[str]:
    return [translator.translate([sentence])[0] for sentence in SENTENCES]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *[("lora", "peft"), ("lora-third", "peft"), ("mbart-lora", "peft"), ("mbart-lora", "transformers")],
        *[("lora", "transformers"), ("lora-third", "transformers"), ("full", "transformers"), ("controllers", "transformers")],
    ],
)
def test_others_libraries_load_what_the_site_uses(run_of: RunOf, tmp_path: Path, kind: str, form: str) -> None:
    run = run_of(kind)
    done = export_model(RunModels(run).of_site("hospital"), tmp_path / "out", form, run)
    own = translator_of_site(run, "hospital")
    codec = own.trainable.backbone.codec
    plain = AutoModelForSeq2SeqLM.from_pretrained(own.settings.backbone)
    base = logits(plain, codec)
    how = {}
    if form == "peft":
        model = PeftModel.from_pretrained(plain, done.directory)
        how = {"forced_bos_token_id": codec.language_ids["fr"], "num_beams": own.settings.beam, "max_new_tokens": 16}
        how |= {"early_stopping": own.settings.beam > 1}
    else:
        model, loading = AutoModelForSeq2SeqLM.from_pretrained(done.directory, output_loading_info=True)
        assert not any(loading.values()), loading
    found = logits(model, codec)
    torch.testing.assert_close(found, logits(own.trainable.model, codec), atol=1e-3, rtol=1e-3)
    assert (found - base).abs().max() > 0.1, "training changed nothing that could be compared"
    assert (found[0] - found[1]).abs().max() > 0.1, "another source is told apart"
    assert by_transformers_alone(model, done.directory, **how) == one_by_one(own)


def test_a_whole_model_repeats_no_more_than_the_run_lets_it(run_of: RunOf, tmp_path: Path) -> None:
    trained = RunModels(run_of("lora")).of_site("hospital")
    for size in (0, 3):
        searching = replace(trained, settings=replace(trained.settings, no_repeat_ngram=size))
        written = export_model(searching, tmp_path / str(size), "transformers").directory / "generation_config.json"
        assert (json.loads(written.read_text()).get("no_repeat_ngram_size") or 0) == size


def test_the_folder_holds_no_file_that_nobody_asked_for(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("lora")
    files = {
        form: {
            file.name for file in export_model(RunModels(run).of_site("court"), tmp_path / form, form, run).directory.iterdir()
        }
        for form in ("adapter", "peft", "transformers")
    }
    extra = {"added_tokens.json"}
    assert files["adapter"] == TOLD | {"adapter.safetensors"}
    assert files["peft"] - extra == TOLD | TOKENIZER | {"adapter_config.json", "adapter_model.safetensors"}
    assert files["transformers"] - extra == TOLD | TOKENIZER | {"config.json", "generation_config.json", "model.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == set(files), "what was written aside is gone"


def test_no_text_of_a_site_and_no_path_is_in_any_file(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("lora")
    rows = [
        line.split("\t") for line in (run / "sites" / "hospital" / "translations.tsv").read_text().rstrip("\n").split("\n")[1:]
    ]
    texts = {cell.encode() for row in rows for cell in row if len(cell) > 8} | {str(tmp_path).encode(), str(run.parent).encode()}
    assert len(texts) > 10
    for form in ("adapter", "peft", "transformers"):
        for file in export_model(RunModels(run).of_site("hospital"), tmp_path / form, form, run).directory.iterdir():
            held = file.read_bytes()
            assert not [text for text in texts if text in held], file


@pytest.mark.parametrize("kind", ["adapters", "lora"])
def test_an_adapter_is_loaded_again_as_what_the_site_uses(run_of: RunOf, loud_backbone: Path, tmp_path: Path, kind: str) -> None:
    run = run_of(kind)
    done = export_model(RunModels(run).of_site("hospital"), tmp_path / "out", "adapter", run)
    again = read_adapter(done.directory)
    assert again.settings.backbone == "loud", "a path of this machine is told to nobody"
    assert (again.direction, again.site, again.round) == (Direction("de", "fr"), "hospital", 2)
    translator = Translator(again, backbone=str(loud_backbone))
    own = translator_of_site(run, "hospital")
    assert torch.equal(
        logits(translator.trainable.model, own.trainable.backbone.codec),
        logits(own.trainable.model, own.trainable.backbone.codec),
    )
    assert translator.translate(SENTENCES) == own.translate(SENTENCES)
    assert load_adapter(done.directory, str(loud_backbone)).trained == own.trainable.trained


def test_an_adapter_is_refused_on_another_backbone_and_when_damaged(run_of: RunOf, tiny_backbone: Path, tmp_path: Path) -> None:
    done = export_model(RunModels(run_of("adapters")).of_site("hospital"), tmp_path / "out").directory
    with pytest.raises(RunError, match="is not the one the run was trained on"):
        load_adapter(done, str(tiny_backbone))
    file = done / "adapter.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(RunError, match="checksum differs"):
        read_adapter(done)
    file.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        read_adapter(done)
    for damage in ("{", '{"settings": 3}', '{"settings": {}, "sha256": ""}', "[1]"):
        (done / FILE).write_text(damage)
        with pytest.raises(RunError, match=r"is damaged|is not an exported adapter"):
            read_adapter(done)
    with pytest.raises(RunError, match="is not an exported adapter; wanted a folder"):
        read_adapter(tmp_path)
    plain = export_model(RunModels(run_of("full")).of_site("hospital"), tmp_path / "plain").directory
    with pytest.raises(RunError, match="it is of form transformers, which needs no fedlingua"):
        read_adapter(plain)


@pytest.mark.parametrize(
    ("kind", "form"), [("encoder-full", "transformers"), ("encoder-lora", "transformers"), ("encoder-lora", "peft")]
)
def test_an_encoder_is_a_plain_one_with_the_same_numbers(
    run_of: RunOf, tiny_encoder: Path, tmp_path: Path, kind: str, form: str
) -> None:
    run = run_of(kind)
    trained = RunModels(run).of_site("court")
    done = export_model(trained, tmp_path / "out", form, run).directory
    base = AutoModelForMaskedLM.from_pretrained(tiny_encoder).eval()
    own = trained.trainable()
    inputs = AutoTokenizer.from_pretrained(done)(["kot widzi psa"], return_tensors="pt")
    assert inputs["input_ids"].tolist() == AutoTokenizer.from_pretrained(tiny_encoder)(["kot widzi psa"])["input_ids"]
    with torch.no_grad():
        before = base(**inputs).logits.clone()
        model = PeftModel.from_pretrained(base, done) if form == "peft" else AutoModelForMaskedLM.from_pretrained(done)
        found = model.eval()(**inputs).logits
        assert trained.load
        write_tensors(own.model, trained.load())
        torch.testing.assert_close(found, own.model.eval()(**inputs).logits, atol=1e-5, rtol=1e-4)
    assert (found - before).abs().max() > 1e-2
    targets = json.loads((done / "adapter_config.json").read_text())["target_modules"] if form == "peft" else ""
    assert "lm_head" not in targets
    assert isinstance(targets, str), "'dense' alone would choose the head's as well"


def test_a_direction_that_no_site_holds_is_taken_from_the_clusters(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("lora")
    direction = Direction("de", "es")
    done = export_model(RunModels(run).of_direction(direction), tmp_path / "out", "transformers", run)
    model = AutoModelForSeq2SeqLM.from_pretrained(done.directory)
    assert by_transformers_alone(model, done.directory) == one_by_one(translator_of_direction(run, direction))
    card = (done.directory / "README.md").read_text()
    assert "made of the clusters nearest to its languages" in card
    assert "Nobody scored this direction." in card


def test_what_a_site_was_not_delivered_comes_from_its_clusters(run_of: RunOf, tmp_path: Path) -> None:
    """A server's folder of a deployed run: the sites' folders are theirs."""
    run = tmp_path / "run"
    shutil.copytree(run_of("lora"), run)
    shutil.rmtree(run / "sites")
    here, there = RunModels(run).of_site("court"), RunModels(run_of("lora")).of_site("court")
    assert here.load
    assert there.load
    assert {name: array.tobytes() for name, array in here.load().items()} == {n: a.tobytes() for n, a in there.load().items()}
    kept = tmp_path / "controllers"
    shutil.copytree(run_of("controllers"), kept)
    shutil.rmtree(kept / "sites")
    with pytest.raises(RunError, match=r"court's model is at the site itself .*`fedlingua site export`"):
        RunModels(kept).of_site("court")
    with pytest.raises(RunError, match="only a part of what was trained is at the server"):
        RunModels(kept).of_direction(Direction("de", "fr"))


@pytest.mark.parametrize(
    ("kind", "form", "told"),
    [
        (
            "adapters",
            "peft",
            r"and peft has no form for those; choose --form adapter, or train with tensor-set = 'lora'",
        ),
        (
            "adapters",
            "transformers",
            r"its relu stands between two projections.*; choose --form adapter, or train with tensor-set = 'lora'",
        ),
        ("adapters", "ctranslate2", r"cannot be merged into the backbone"),
        ("full", "adapter", r"the whole model trained.*choose --form transformers or ctranslate2"),
        ("controllers", "peft", r"trained all of the model.s weights.*choose --form transformers or ctranslate2"),
        ("encoder-full", "ctranslate2", r"trained an encoder, which translates nothing; choose --form transformers"),
        ("encoder-adapters", "transformers", r"cannot be merged.*choose --form adapter, or train"),
        ("base", "", r"method base trains nothing, so there is nothing to export but its backbone"),
    ],
)
def test_a_form_that_cannot_express_it_is_refused_with_the_reason(
    run_of: RunOf, tmp_path: Path, kind: str, form: str, told: str
) -> None:
    with pytest.raises(RunError, match=told):
        export_model(RunModels(run_of(kind)).of_site("hospital"), tmp_path / "out", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("form", "quantization", "told"),
    [
        ("gguf", "", r"--form 'gguf' is not known; choose one of adapter, peft, transformers, ctranslate2"),
        ("peff", "", r"did you mean 'peft'"),
        ("transformers", "int8", r"--quantization int8 is for CTranslate2 models; give --form ctranslate2"),
        ("ctranslate2", "int9", r"--quantization 'int9' is not known; did you mean 'int8'"),
    ],
)
def test_an_unknown_form_is_refused_before_anything_is_read(form: str, quantization: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_form(form, quantization)


def test_without_ctranslate2_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlingua.desk.export.forms.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'fedlingua\[ctranslate2\]'"):
        check_form("ctranslate2", "")


def test_what_is_there_is_replaced_only_when_asked_and_only_by_a_whole_one(
    run_of: RunOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, to = run_of("lora"), tmp_path / "out"
    export_model(RunModels(run).of_site("hospital"), to, "peft", run)
    before = {file.name: file.read_bytes() for file in to.iterdir()}
    with pytest.raises(ConfigError, match="already exists; give another folder, or --force"):
        export_model(RunModels(run).of_site("hospital"), to, "peft", run)

    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("fedlingua.desk.export.directories.write_tokenizer", full_disk)
        with pytest.raises(RunError, match=r"cannot be written \(no space left on device\); nothing was left behind"):
            export_model(RunModels(run).of_site("hospital"), to, "peft", run, force=True)
    assert {file.name: file.read_bytes() for file in to.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    export_model(RunModels(run).of_site("hospital"), to, "adapter", run, force=True)
    assert {file.name for file in to.iterdir()} == TOLD | {"adapter.safetensors"}


def test_force_removes_nothing_but_exports(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("all of it")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="so --force does not remove it"):
        check_place(tmp_path / "thesis", force=True)
    for name in ("file", "link"):
        with pytest.raises(ConfigError, match="there is a file or a link of this name"):
            check_place(tmp_path / name, force=True)
    with pytest.raises(ConfigError, match="is a file, not a folder; give another path"):
        check_place(tmp_path / "file" / "out", force=False)
    assert check_place(tmp_path / "empty", force=False) == tmp_path / "empty"


def test_a_backbone_that_has_changed_since_is_refused_and_leaves_nothing(
    run_of: RunOf, loud_backbone: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(loud_backbone, other)
    tensors = load_file(other / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, other / "model.safetensors", {"format": "pt"})
    run = tmp_path / "run"
    shutil.copytree(run_of("lora"), run)
    about = json.loads((run / "run.json").read_text())
    about["config"]["backbone"] = str(other)
    (run / "run.json").write_text(json.dumps(about))
    with pytest.raises(FedlinguaError, match="is not the one the run was trained on"):
        export_model(RunModels(run).of_site("hospital"), tmp_path / "out", "peft")
    assert not list(tmp_path.glob("out*"))


def test_every_language_of_the_tokenizer_can_be_asked_of_what_was_exported(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("lora")
    done = export_model(RunModels(run).of_site("court"), tmp_path / "out", "transformers", run).directory
    tokenizer = AutoTokenizer.from_pretrained(done)
    codec = translator_of_site(run, "court").trainable.backbone.codec
    assert tokenizer(SENTENCES)["input_ids"] == codec.encode_source(SENTENCES, Direction("pl", "pl"), 64), (
        "the site's own source, where nothing is said"
    )
    for language in phrasebook.LANGUAGES:
        tokenizer.src_lang = language
        assert tokenizer(SENTENCES)["input_ids"] == codec.encode_source(SENTENCES, Direction(language, language), 64)
