"""A run's models on one backbone: which glossaries go with them."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels

DE_FR = Direction("de", "fr")


def glossary(folder: Path, name: str) -> Decoding:
    (folder / name).write_text("Arzt\tla dame\n", encoding="utf-8")
    return Decoding(terms=folder / name)


def test_a_glossary_is_read_for_the_directions_that_the_run_translates(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, sv_de = Models(RunModels(finished_run), glossary(tmp_path, "terms.sv-de.tsv")), Direction("sv", "de")
    assert list(models._terms) == [sv_de, sv_de.reverse]
    monkeypatch.setattr(models.translator.trainable.backbone.codec, "writes", {"de"})  # as of a Marian model
    assert [direction for direction, _ in models._read_terms(tmp_path / "terms.sv-de.tsv")] == [sv_de]


def test_a_glossary_of_a_sites_direction_is_read_where_only_sites_are_answered(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunModels, "why_no_direction", "the federation's file cannot be read here")
    assert list(Models(RunModels(finished_run), glossary(tmp_path, "terms.fr-de.tsv"))._terms) == [DE_FR]


def test_a_glossary_goes_with_a_more_specific_code_in_the_same_script(finished_run: Path, tmp_path: Path) -> None:
    models = Models(RunModels(finished_run), glossary(tmp_path, "terms.de-fr.tsv"))
    for asked, has_terms in (("de-DE--fr-CA", True), ("de-Hebr--fr", False), ("nl-fr", False)):
        models.translate(models.of_direction(parse_direction(asked)), ["Arzt"])
        assert (models.translator.terms is not None) is has_terms


def test_lines_that_are_not_used_are_named_with_their_direction(finished_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "terms.sv-de.tsv"
    file.write_text("läkare\tArzt\nbok\tBuch\nläkare\tMediziner\n", encoding="utf-8")
    remark = f"{file}, line 3: translates the term of line 1 differently; line 1 is used"
    assert Models(RunModels(finished_run), Decoding(terms=file)).remarks == [f"sv-de: {remark}"]


def test_a_glossary_of_other_languages_is_refused(finished_run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"zu-xh\.tsv: the run translates neither zu-xh nor xh-zu; give a glossary of languages"
    ):
        Models(RunModels(finished_run), glossary(tmp_path, "terms.zu-xh.tsv"))
