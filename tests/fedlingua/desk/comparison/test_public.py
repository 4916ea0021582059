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
from fedlingua.desk.comparison.compare import compare
from fedlingua.desk.comparison.public import on_public_text
from fedlingua.desk.translator import Translator
from fedlingua.evaluation.scores import bleu_score, score_sums
from tests.in_process import run

PUBLIC = {
    Direction("cs", "de"): [Pair("Lékař čte.", "Der Arzt liest."), Pair("Dobré ráno.", "Guten Morgen."), Pair("Ano.", "Ja.")],
    Direction("cs", "sv"): [Pair("Lékař čte.", "Läkaren läser."), Pair("Dobré ráno.", "God morgon.")],
}


class Runs(dict[str, Path]):
    """Method -> the folder of a run of it, made when it is first asked for."""

    def __init__(self, config, folder):
        self.config, self.folder = config, folder

    def __missing__(self, method):
        self[method] = run({**self.config, "method": method}, self.folder / method)[0].directory
        return self[method]


@pytest.fixture
def runs(four_sites, tmp_path):
    return Runs({**four_sites, "rounds": 1, "beam": 1}, tmp_path)


def silent(what: str, done: int, of: int) -> None:
    assert 0 <= done < of


def test_each_run_translates_as_its_site_does_and_else_as_the_nearest_clusters(runs):
    found = on_public_text([runs["adapter-fed"], runs["adapter-families"]], PUBLIC, "", "", silent)
    for one, folder in zip(found, (runs["adapter-fed"], runs["adapter-families"]), strict=True):
        assert list(one.scores["sites"]) == ["cs-de", "cs-sv"]
        for direction, pairs in PUBLIC.items():
            translator = (
                Translator.of_site(folder, "bank")
                if direction == Direction("cs", "de")
                else Translator.of_direction(folder, direction)
            )
            written = translator.translate([pair.source for pair in pairs])
            assert one.texts[str(direction)].hypotheses == written
            sums = score_sums(written, [pair.target for pair in pairs], direction.target)
            assert one.scores["sites"][str(direction)]["bleu"] == pytest.approx(bleu_score(sums))
        own = json.loads((folder / "scores.json").read_text())
        assert one.scores["uplink_bytes_per_round"] == own["uplink_bytes_per_round"]


def test_sites_folders_are_not_needed_where_all_that_travels_is_at_the_server(runs, tmp_path):
    """As after a deployment, whose sites keep text, tensors and translations to themselves."""
    both = [runs["adapter-fed"], runs["adapter-families"]]
    before = on_public_text(both, PUBLIC, "ter", "", silent)
    for folder in both:
        shutil.rmtree(folder / "sites")
    found = on_public_text(both, PUBLIC, "ter", "", silent)
    assert [one.texts for one in found] == [one.texts for one in before]
    shown = compare(found, "ter", 100, 1)
    assert [sentence.reference for sentence in shown.sentences] or found[0].texts == found[1].texts
    assert all(site.p is not None for site in shown.beside[0].sites.values())


def test_what_a_run_cannot_translate_is_refused(runs):
    with pytest.raises(RunError, match="leaves nothing at the server"):
        on_public_text([runs["adapter-fed"], runs["adapter-local"]], PUBLIC, "", "", silent)
    with pytest.raises(ConfigError, match="no pair of cs-de is left"):
        on_public_text([runs["base"], runs["adapter-fed"]], {Direction("cs", "de"): []}, "", "", silent)
    with pytest.raises(FedlinguaError, match="zz"):
        on_public_text([runs["base"], runs["adapter-fed"]], {Direction("zz", "de"): [Pair("a", "b")]}, "", "", silent)


def test_the_command_reads_a_corpus_and_leaves_the_runs_as_they_are(runs, tmp_path):
    (tmp_path / "public.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PUBLIC[Direction("cs", "de")]))
    both = [str(runs["base"]), str(runs["adapter-families"])]
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
