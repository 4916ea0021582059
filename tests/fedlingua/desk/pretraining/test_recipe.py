"""The recipe of a backbone: what it trains on, and what no dev or test text may touch."""

import dataclasses
import json
from pathlib import Path

import pytest

from fedlingua.common.errors import BackboneError, ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.read import LineFiles, Pair, TsvFile
from fedlingua.corpora.recipe import BaseShare, forbidden_sides
from fedlingua.corpora.split import Side
from fedlingua.desk.pretraining.recipe import Recipe, check_trained_by, read_recipe
from fedlingua.desk.pretraining.settings import EncoderSettings, EncoderSize, ModelSize, PretrainSettings, Watching
from fedlingua.desk.pretraining.text import BaseText, base_text, made_of
from fedlingua.settings.config import Scalar

CORPUS = '[[corpus]]\ndirection = "de-en"\ntsv = "de-en.tsv"\n'
DE_EN, FR_EN = Direction("de", "en"), Direction("fr", "en")


def recipe(folder: Path, text: str) -> Recipe:
    path = folder / "half.toml"
    path.write_text(text)
    return read_recipe(path, folder)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        recipe(folder, text)
    return str(caught.value)


def two_corpora(folder: Path, share: float, dev: float) -> Recipe:
    """German and French sentences with English ones in common: German 2n and 2n + 1, and French n, for English n."""
    german = [f"Satz {number}\tsentence {number // 2}\n" for number in range(4000)]
    french = [f"phrase {number}\tsentence {number}\n" for number in range(2000)]
    (folder / "de-en.tsv").write_text("".join(german) + "kurz\tshort\n")
    (folder / "fr-en.tsv").write_text("".join(french))
    base = f"[base]\nshare = {share}\ndev = {dev}\n"
    return recipe(folder, base + CORPUS + CORPUS.replace("de-en", "fr-en"))


def sides(text: dict[Direction, list[Pair]]) -> set[Side]:
    found = {(direction.source, pair.source) for direction, pairs in text.items() for pair in pairs}
    return found | {(direction.target, pair.target) for direction, pairs in text.items() for pair in pairs}


def test_a_recipe_of_one_corpus_takes_every_default(tmp_path: Path) -> None:
    read = recipe(tmp_path, CORPUS)
    assert read == Recipe(
        name="half",
        base=BaseShare(),
        cleaning=CleaningRules(),
        model=ModelSize(),
        training=PretrainSettings(),
        corpora=((DE_EN, TsvFile(tmp_path / "de-en.tsv")),),
        sources=("de-en.tsv",),
    )


def test_every_table_of_the_recipe_is_read(tmp_path: Path) -> None:
    tables = """
    name = "small"
    [base]
    key = "k"
    share = 0.5
    [cleaning]
    min-words = 1
    [model]
    d-model = 64
    [training]
    minutes = 2
    """
    read = recipe(tmp_path, tables + CORPUS + CORPUS.replace("de-en", "fr-en"))
    assert (read.name, read.base, read.cleaning.min_words) == ("small", BaseShare("k", 0.5), 1)
    assert (read.model.d_model, read.training.minutes) == (64, 2.0)
    assert [direction for direction, _ in read.corpora] == [DE_EN, FR_EN]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[basis]\nshare = 0.5\n" + CORPUS, "half.toml: basis = {'share': 0.5}: there is no such key; did you mean 'base'?"),
        ("[base]\nshares = 0.5\n" + CORPUS, "[base]: shares = 0.5: there is no such key; did you mean 'share'?"),
        ("[model]\nd_model = 64\n" + CORPUS, "[model]: d_model = 64: there is no such key; did you mean 'd-model'?"),
        ("[training]\nstep = 64\n" + CORPUS, "[training]: step = 64: there is no such key; did you mean 'steps'?"),
        (CORPUS + "column = [1, 0]\n", "corpus 1: column = [1, 0]: there is no such key; did you mean 'columns'?"),
        ("[training]\nsteps = true\n" + CORPUS, "[training]: steps = True is of type bool; wanted int"),
        ("cleaning = 3\n" + CORPUS, "half.toml: cleaning = 3; wanted a table, [cleaning] with keys below it"),
        ("[cleaning]\nmin-script-share = 2\n" + CORPUS, "half.toml [cleaning]: min-script-share = 2 is not a share"),
        (CORPUS + CORPUS, "half.toml, corpus 2: is listed twice; remove one of the two"),
        ('name = "empty"\n', "half.toml has no [[corpus]]"),
        (
            CORPUS.replace("[[corpus]]", "[corpus]"),
            "half.toml: corpus = {'direction': 'de-en', 'tsv': 'de-en.tsv'}; wanted tables, [[",
        ),
        ('corpus = ["a.tsv"]\n', "half.toml: corpus = ['a.tsv']; wanted tables, [[corpus]] with keys below each"),
        ("corpus = 3\n", "half.toml: corpus = 3; wanted tables, [[corpus]]"),
        (
            CORPUS.replace("de-en", "deu-en", 1),
            "corpus 1: direction = 'deu-en': language = 'deu' is not known; did you mean 'de'?",
        ),
        (CORPUS.replace("tsv =", "moses = 'a'\ntsv ="), "corpus 1: got moses and tsv; wanted one of"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_an_encoder_trains_on_no_more_tokens_than_it_has_positions_for(tmp_path: Path) -> None:
    sizes = "[model]\nmax-positions = 64\n[training]\nmax-tokens = {}\n"
    text = 'task = "masked-language"\n' + sizes + '[[corpus]]\nlanguage = "de"\nlines = "de.txt"\n'
    assert "half.toml [training]: max-tokens = 65; wanted at most 64" in refusal(tmp_path, text.format(65))
    assert recipe(tmp_path, text.format(64)).training.max_tokens == 64
    assert recipe(tmp_path, sizes.format(65) + CORPUS).training.max_tokens == 65, "whose positions are computed"


def test_with_a_whole_share_everything_kept_trains_or_watches(tmp_path: Path) -> None:
    text = base_text(two_corpora(tmp_path, share=1.0, dev=0.2))
    assert [len(text.train[direction]) + len(text.dev[direction]) for direction in (DE_EN, FR_EN)] == [4000, 2000]
    assert (text.accounts[DE_EN].read, text.accounts[DE_EN].dropped) == (4001, {"too-short": 1})
    assert text.accounts[FR_EN].kept == 2000


@pytest.mark.parametrize(("dev", "empty"), [(0.0, "dev"), (1.0, "train")])
def test_without_a_watching_share_nothing_watches_and_with_a_whole_one_nothing_trains(
    tmp_path: Path, dev: float, empty: str
) -> None:
    assert getattr(base_text(two_corpora(tmp_path, share=1.0, dev=dev)), empty) == {}


@pytest.fixture
def half(tmp_path: Path) -> tuple[Recipe, BaseText]:
    read = two_corpora(tmp_path, share=0.5, dev=0.3)
    return read, base_text(read)


def test_half_of_the_components_are_taken_and_three_tenths_of_those_watches(half: tuple[Recipe, BaseText]) -> None:
    _, text = half
    taken = len(text.train[FR_EN]) + len(text.dev[FR_EN])
    assert taken / 2000 == pytest.approx(0.5, abs=0.04)
    assert len(text.dev[FR_EN]) / taken == pytest.approx(0.3, abs=0.05)


def test_equal_sentences_train_or_watch_together_in_all_corpora(half: tuple[Recipe, BaseText]) -> None:
    _, text = half
    for part in (text.train, text.dev):
        english = {pair.target for pair in part[FR_EN]}
        assert {pair.target for pair in part[DE_EN]} == english
        assert len(part[DE_EN]) == 2 * len(english)
    assert not sides(text.train) & sides(text.dev)


def test_the_forbidden_sentences_are_those_that_train_and_those_that_watch(half: tuple[Recipe, BaseText]) -> None:
    read, text = half
    assert forbidden_sides(read) == sides(text.train) | sides(text.dev)


def test_a_corpus_of_which_nothing_is_kept_is_named(tmp_path: Path) -> None:
    (tmp_path / "de-en.tsv").write_text("kurz\tshort\n")
    with pytest.raises(CorpusError, match="corpus de-en: none of 1 pairs was kept"):
        base_text(recipe(tmp_path, CORPUS))


def test_a_share_that_leaves_no_dev_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "de-en.tsv").write_text("ein kurzer Satz\ta short sentence\n")
    with pytest.raises(BackboneError, match=r"\[base\] dev = 0.01 leaves no dev text; give a larger dev, more text, or dev = 0"):
        base_text(recipe(tmp_path, CORPUS + "[base]\nshare = 1.0\ndev = 0.01\n"))


# --- Of an encoder ---------------------------------------------------------------------------------------------------------------

TEXT = '[[corpus]]\nlanguage = "de"\nlines = "de.txt"\n'
ENCODER = 'task = "masked-language"\n'


def test_an_encoders_recipe_takes_every_default_of_encoders(tmp_path: Path) -> None:
    read = recipe(tmp_path, ENCODER + TEXT)
    assert (read.model, read.training) == (EncoderSize(), EncoderSettings())
    assert (read.training.label_smoothing, EncoderSettings().mask_share) == (0.0, 0.15)
    assert read.corpora == ((Direction("de", "de"), LineFiles(tmp_path / "de.txt", tmp_path / "de.txt")),)


def test_an_encoders_tables_are_read(tmp_path: Path) -> None:
    read = recipe(
        tmp_path,
        f"{ENCODER}[model]\nlayers = 1\n[training]\nmask-share = 0.3\n"
        + TEXT.replace("lines", "nway").replace("de.txt", "d.{}.txt"),
    )
    assert isinstance(read.training, EncoderSettings)
    assert isinstance(read.model, EncoderSize)
    assert (read.model.layers, read.training.mask_share) == (1, 0.3)
    assert read.corpora[0][1] == LineFiles(tmp_path / "d.de.txt", tmp_path / "d.de.txt")


def test_a_language_may_stand_twice_and_its_accounts_are_one(tmp_path: Path) -> None:
    for name, lines in (("a", 30), ("b", 20)):
        (tmp_path / f"{name}.txt").write_text("".join(f"Der Satz {name} {number} ist da\n" for number in range(lines)))
    both = "".join(TEXT.replace("de.txt", f"{name}.txt") for name in "ab")
    text = base_text(recipe(tmp_path, f"{ENCODER}[base]\ndev = 0.0\n{both}"))
    german = Direction("de", "de")
    assert len(text.train[german]) == 50
    assert text.accounts[german].read == 50
    assert all(pair.source == pair.target for pair in text.train[german])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('task = "masked"\n' + TEXT, "task = 'masked' is not known; did you mean 'masked-language'?; choose one of translation"),
        (ENCODER, "half.toml has no [[corpus]]; give at least one with language and lines or nway"),
        (ENCODER + CORPUS, "corpus 1: direction = 'de-en': there is no such key"),
        (TEXT, "corpus 1: language = 'de': there is no such key"),
        (ENCODER + TEXT.replace('"de"', '"deu"'), "corpus 1: language = 'deu' is not known; did you mean 'de'?"),
        (ENCODER + '[[corpus]]\nlanguage = "de"\n', "corpus 1: got no corpus; wanted one of lines or nway"),
        (ENCODER + TEXT + 'nway = "d.{}"\n', "corpus 1: got lines and nway; wanted one of lines or nway"),
        (ENCODER + TEXT.replace("lines", "nway"), "has no place for the language"),
        (ENCODER + "[model]\nencoder-layers = 2\n" + TEXT, "[model]: encoder-layers = 2: there is no such key"),
        ("[training]\nmask-share = 0.2\n" + CORPUS, "[training]: mask-share = 0.2: there is no such key"),
        (ENCODER + "[training]\nmask-share = 0.0\n" + TEXT, "mask-share = 0; wanted a number above 0, at most 1"),
        (ENCODER + "[training]\nmask-share = 1.5\n" + TEXT, "mask-share = 1.5; wanted a number above 0, at most 1"),
        ('name = "demo-encoder"\n' + ENCODER + TEXT, "name = 'demo-encoder'; wanted letters"),
        ('name = "demo"\n' + CORPUS, "not what is built in (demo, demo-encoder)"),
    ],
)
def test_a_mistake_in_an_encoders_recipe_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_a_corpus_may_come_in_any_form(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[[corpus]]\ndirection = "de-en"\ntmx = "memory.tmx"\n[cleaning]\nmin-words = 1\n[base]\ndev = 0.0\n')
    (tmp_path / "memory.tmx").write_text(
        '<tmx><body><tu><tuv xml:lang="en-GB"><seg>dog</seg></tuv><tuv xml:lang="de"><seg>Hund</seg></tuv></tu></body></tmx>'
    )
    text = base_text(read_recipe(file, tmp_path))
    assert [pair for pairs in (*text.train.values(), *text.dev.values()) for pair in pairs] == [Pair("Hund", "dog")]


# --- Several corpora, both ways, watched ------------------------------------------------------------------------------------------

LATER = 'name = "half"\n[watching]\nkeep = "best"\nevaluate-every = 5\n[training]\nsampling-temperature = 5\n'


def test_a_direction_may_have_several_corpora_and_their_accounts_are_one(tmp_path: Path) -> None:
    for name, lines in (("a", 30), ("b", 20)):
        (tmp_path / f"{name}.tsv").write_text(
            "".join(f"Satz {name} {number}\tsentence {name} {number}\n" for number in range(lines))
        )
    both = "".join(CORPUS.replace("de-en.tsv", f"{name}.tsv") for name in "ab")
    read = recipe(tmp_path, "[base]\ndev = 0.0\n" + both)
    text = base_text(read)
    assert len(text.train[DE_EN]) == text.accounts[DE_EN].read == 50
    assert read.sources == ("a.tsv", "b.tsv")
    assert read.trained == [DE_EN]


def test_both_ways_every_pair_stands_the_other_way_round_too_on_the_same_side(tmp_path: Path) -> None:
    one_way = base_text(two_corpora(tmp_path, share=1.0, dev=0.2))
    (tmp_path / "half.toml").write_text("both-ways = true\n" + (tmp_path / "half.toml").read_text())
    read = read_recipe(tmp_path / "half.toml", tmp_path)
    text = base_text(read)
    assert read.trained == [DE_EN, FR_EN, DE_EN.reverse, FR_EN.reverse]
    for both, one in ((text.train, one_way.train), (text.dev, one_way.dev)):
        assert {direction: both[direction] for direction in (DE_EN, FR_EN)} == one
        assert both[FR_EN.reverse] == [Pair(pair.target, pair.source) for pair in one[FR_EN]]
    assert text.accounts == one_way.accounts
    assert forbidden_sides(read) == sides(one_way.train) | sides(one_way.dev)


def test_what_is_set_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "half.toml").write_text(LATER + CORPUS)
    changes = {"name": "mine", "training.steps": 7, "watching.keep": "last", "base.dev": 0.5}
    read = read_recipe(tmp_path / "half.toml", tmp_path, changes)
    assert (read.name, read.training.steps, read.base.dev) == ("mine", 7, 0.5)
    assert read.watching == Watching(evaluate_every=5, keep="last")
    assert read.training.sampling_temperature == 5.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"trainings.steps": 7}, "trainings = {'steps': 7}: there is no such key; did you mean 'training'?"),
        ({"training.step": 7}, "[training]: step = 7: there is no such key; did you mean 'steps'?"),
        ({"training.steps": 0}, "[training]: steps = 0; wanted a number 1 or more"),
        ({"name.of": 7}, "--set name.of=7: 'name' has no keys of its own; the tables are base, cleaning, model"),
        ({"training": 7}, "training = 7; wanted a table, [training] with keys below it"),
        ({"training.sampling-temperature": 0.5}, "sampling-temperature = 0.5; wanted a number 1 (by size) or more (more alike)"),
        ({"training.sampling-temperature": float("nan")}, "sampling-temperature = nan"),
        ({"training.precision": "fp16"}, "precision = 'fp16' is not known; did you mean 'bf16'?; choose one of fp32, bf16"),
        ({"training.device": "gpu"}, "device = 'gpu' is not known"),
        ({"watching.evaluate-every": -1}, "[watching]: evaluate-every = -1; wanted a number 0 or more"),
        ({"watching.keep": "both"}, "keep = 'both' is not known"),
        ({"base.dev": 0.0}, "[watching]: keep = 'best' needs text that watches, and [base] dev = 0"),
        ({"both-ways": "yes"}, "both-ways = 'yes'; wanted true or false"),
        ({"licences.tatoeba": 4}, "[licences]: tatoeba = 4; wanted text in quotation marks"),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Scalar], told: str) -> None:
    (tmp_path / "half.toml").write_text(LATER + CORPUS)
    with pytest.raises(ConfigError) as caught:
        read_recipe(tmp_path / "half.toml", tmp_path, changes)
    assert told in str(caught.value)


def test_text_in_one_language_has_no_other_way(tmp_path: Path) -> None:
    assert "both-ways = True" in refusal(tmp_path, f"both-ways = true\n{ENCODER}{TEXT}")


VERSIONS = {"torch": "2", "transformers": "5", "sentencepiece": "0.2", "sacrebleu": "2.6"}


def test_a_backbone_is_made_of_its_settings_its_text_and_what_computes(tmp_path: Path) -> None:
    read = two_corpora(tmp_path, share=0.5, dev=0.2)
    made = made_of(read, base_text(read), VERSIONS)
    assert (made["training.learning-rate"], made["model.d-model"], made["base.share"]) == (2e-3, 128, 0.5)
    assert (made["corpus 2"], made["version of torch"]) == ("fr-en fr-en.tsv", "2")
    assert made == json.loads(json.dumps(made))
    other = dataclasses.replace(read, watching=Watching(checkpoint_minutes=1.0), licences={"a": "b"})
    assert made_of(other, base_text(other), VERSIONS) == made
    with (tmp_path / "fr-en.tsv").open("a") as corpus:
        corpus.write("".join(f"une autre {number}\tanother one {number}\n" for number in range(20)))
    changed = made_of(read, base_text(read), VERSIONS)
    assert {key for key in made if made[key] != changed[key]} == {"text, sha256"}


def trained(folder: Path, **other: object) -> Path:
    """A backbone's folder with the pretraining.json of the recipe `CORPUS`, but with `other` in it."""
    made = {"name": "half", "base": dataclasses.asdict(BaseShare()), "corpora": ["de-en"], "sources": ["de-en.tsv"], **other}
    (folder / "pretraining.json").write_text(json.dumps({"recipe": made}))
    return folder


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"base": {"share": 0.5}}, "base.share = 0.5, not 1.0"),
        ({"base": {"key": "k", "dev": 0.5}}, "base.key = 'k', not 'fedlingua'; name"),
        (
            {"cleaning": {"min_words": 1, "normalize": "NFC"}},
            "cleaning.min-words = 1, not 2; cleaning.normalize = 'NFC', not 'off'",
        ),
        ({"sources": ["x/de-en.tsv"]}, "corpora: de-en x/de-en.tsv, not de-en de-en.tsv"),
        ({"sources": ["/data/fr-en.tsv"]}, "corpora: de-en fr-en.tsv, not de-en de-en.tsv"),
        ({"corpora": ["de-en", "fr-en"], "sources": ["de-en.tsv", "b"]}, "corpora: fr-en b, not none"),
    ],
)
def test_a_backbone_trained_on_other_text_is_refused(tmp_path: Path, other: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_trained_by(recipe(tmp_path, CORPUS), trained(tmp_path, **other))
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"base": {"dev": 0.5}, "cleaning": {"min_words": 2, "strict": True}, "training": {"steps": 3}},
    ],
)
def test_a_backbone_trained_on_the_recipes_text_is_not(tmp_path: Path, other: dict[str, object]) -> None:
    read = recipe(tmp_path, CORPUS)
    check_trained_by(read, tmp_path)  # a backbone of others has no pretraining.json
    check_trained_by(read, trained(tmp_path, **other))


def test_data_may_be_elsewhere_on_another_machine(tmp_path: Path) -> None:
    read = recipe(tmp_path, CORPUS.replace("de-en.tsv", "/here/de-en.tsv"))
    check_trained_by(read, trained(tmp_path, sources=["/elsewhere/de-en.tsv"]))


def test_the_order_of_corpora_and_an_older_account_without_files_are_no_difference(tmp_path: Path) -> None:
    read = recipe(tmp_path, CORPUS + CORPUS.replace("de-en", "fr-en"))
    check_trained_by(read, trained(tmp_path, corpora=["fr-en", "de-en"], sources=["fr-en.tsv", "de-en.tsv"]))
    (tmp_path / "pretraining.json").write_text(json.dumps({"recipe": {"corpora": ["de-en", "fr-en"]}}))
    check_trained_by(read, tmp_path)
