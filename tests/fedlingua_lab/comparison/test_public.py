"""Runs beside each other on public text: what each translates here, as its sites do, and without their folders."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, FedlinguaError, RunError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.cli.app import app
from fedlingua.evaluation.scores import bleu_score, score_sums
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.comparison.compare import compare
from fedlingua_lab.comparison.public import on_public_text
from tests.translated_runs import translator_of_direction, translator_of_site

PUBLIC = {
    Direction("cs", "de"): [Pair("Lékař čte.", "Der Arzt liest."), Pair("Dobré ráno.", "Guten Morgen."), Pair("Ano.", "Ja.")],
    Direction("cs", "sv"): [Pair("Lékař čte.", "Läkaren läser."), Pair("Dobré ráno.", "God morgon.")],
}


def silent(what: str, done: int, of: int) -> None:
    assert 0 <= done < of


def test_each_run_translates_as_its_site_does_and_else_as_the_nearest_clusters(four_sites_run):
    found = on_public_text([four_sites_run("adapter-fed"), four_sites_run("adapter-families")], PUBLIC, "", "", silent)
    for one, folder in zip(found, (four_sites_run("adapter-fed"), four_sites_run("adapter-families")), strict=True):
        assert list(one.scores["sites"]) == ["cs-de", "cs-sv"]
        for direction, pairs in PUBLIC.items():
            translator = (
                translator_of_site(folder, "bank")
                if direction == Direction("cs", "de")
                else translator_of_direction(folder, direction)
            )
            written = translator.translate([pair.source for pair in pairs])
            assert one.texts[str(direction)].hypotheses == written
            sums = score_sums(written, [pair.target for pair in pairs], direction.target)
            assert one.scores["sites"][str(direction)]["bleu"] == pytest.approx(bleu_score(sums))
        own = json.loads((folder / "scores.json").read_text())
        assert one.scores["uplink_bytes_per_round"] == own["uplink_bytes_per_round"]


def test_sites_folders_are_not_needed_where_all_that_travels_is_at_the_server(four_sites_run, tmp_path):
    """As after a deployment, whose sites keep text, tensors and translations to themselves."""
    both = [shutil.copytree(four_sites_run(method), tmp_path / method) for method in ("adapter-fed", "adapter-families")]
    before = on_public_text(both, PUBLIC, "ter", "", silent)
    for folder in both:
        shutil.rmtree(folder / "sites")
    found = on_public_text(both, PUBLIC, "ter", "", silent)
    assert [one.texts for one in found] == [one.texts for one in before]
    shown = compare(found, "ter", 100, 1)
    assert [sentence.reference for sentence in shown.sentences] or found[0].texts == found[1].texts
    assert all(site.p is not None for site in shown.beside[0].sites.values())


def test_what_a_run_cannot_translate_is_refused(four_sites_run, tmp_path):
    local = RunFolder(shutil.copytree(four_sites_run("adapter-fed"), tmp_path / "local"))
    local.update(config={**json.loads((local.directory / "run.json").read_text())["config"], "method": "adapter-local"})
    with pytest.raises(RunError, match="leaves nothing at the server"):
        on_public_text([four_sites_run("adapter-fed"), local.directory], PUBLIC, "", "", silent)
    with pytest.raises(ConfigError, match="no pair of cs-de is left"):
        on_public_text([four_sites_run("base"), four_sites_run("adapter-fed")], {Direction("cs", "de"): []}, "", "", silent)
    with pytest.raises(FedlinguaError, match="zz"):
        on_public_text(
            [four_sites_run("base"), four_sites_run("adapter-fed")], {Direction("zz", "de"): [Pair("a", "b")]}, "", "", silent
        )


def test_the_command_reads_a_corpus_and_leaves_the_runs_as_they_are(four_sites_run, tmp_path):
    (tmp_path / "public.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PUBLIC[Direction("cs", "de")]))
    both = [str(four_sites_run("base")), str(four_sites_run("adapter-families"))]
    before = {file: file.read_bytes() for folder in both for file in Path(folder).rglob("*.json")}
    public = ["--public", str(tmp_path / "public.tsv"), "--direction", "cs-de", "--limit", "2"]
    done = CliRunner().invoke(app, ["compare", *both, *public, "--samples", "40", "--format", "json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert list(told["scores"]) == ["cs-de"]
    assert told["beside"][0]["sites"]["cs-de"]["p"] is not None
    assert {file: file.read_bytes() for file in before} == before
    for wrong in (["--direction", "cs-de"], ["--limit", "3"]):
        assert CliRunner().invoke(app, ["compare", *both, *wrong]).exit_code == 2
    lacking = CliRunner().invoke(app, ["compare", *both, *public[:2]]).exception
    assert isinstance(lacking, ConfigError)
    assert "--public needs --direction" in str(lacking)
