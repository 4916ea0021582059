"""CTranslate2's models translate as transformers' do, of M2M-100 and of mBART-50, with the tokenizer that lies beside them."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels
from tests.fedlingua.conftest import RunOf
from tests.translated_runs import translator_of_site

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
SENTENCES = ["Guten Morgen.", "Der Arzt liest ein Buch.", "Die Frau kauft heute das Haus.", "Das Kind sieht den Hund im Garten."]


def translated(folder: Path, target: str, beam: int, longest: int) -> list[str]:
    """As the model's card says."""
    translator, tokenizer = ctranslate2.Translator(str(folder), intra_threads=1), AutoTokenizer.from_pretrained(folder)
    pieces = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(SENTENCES)["input_ids"]]
    found = translator.translate_batch(
        pieces, target_prefix=[[target]] * len(pieces), beam_size=beam, max_decoding_length=longest
    )
    rows = [tokenizer.convert_tokens_to_ids(one.hypotheses[0][1:]) for one in found]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


# transformers ends what mBART-50 does not end by itself with one more token, </s>, as its configuration has it.
@pytest.mark.parametrize(
    ("kind", "target", "beam", "longest"),
    [("lora", "__fr__", 2, 16), ("controllers", "__fr__", 2, 16), ("mbart-lora", "fr_XX", 1, 15)],
)
def test_it_translates_as_the_site_does(run_of: RunOf, tmp_path: Path, kind: str, target: str, beam: int, longest: int) -> None:
    run = run_of(kind)
    own = translator_of_site(run, "hospital")
    done = export_model(RunModels(run).of_site("hospital"), tmp_path / "out", "ctranslate2", run).directory
    assert translated(done, target, beam, longest) == [own.translate([sentence])[0] for sentence in SENTENCES]
    assert f'[["{target}"]]' in (done / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_int8_is_a_quarter_of_the_weights(run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("mbart-lora")
    trained = RunModels(run).of_site("hospital")
    sizes = {
        kind: (export_model(trained, tmp_path / f"out{kind}", "ctranslate2", run, quantization=kind).directory / "model.bin")
        .stat()
        .st_size
        for kind in ("", "int8")
    }
    assert sizes["int8"] < 0.7 * sizes[""], "scales and biases of a model this small weigh much"
    assert len(translated(tmp_path / "outint8", "fr_XX", 1, 15)) == len(SENTENCES)
    assert "Numbers are stored as int8." in (tmp_path / "outint8" / "README.md").read_text()
