"""The two tasks from data to result: tagging of entities, and labels of marked mentions."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedlingua.common.pace import Pace
from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from fedlingua.desk.finetuning.examples import Example
from fedlingua.desk.finetuning.iob import Tagged
from fedlingua.desk.finetuning.loop import Epoch, answers, fine_tune
from fedlingua.desk.finetuning.marking import add_markers, pair_examples
from fedlingua.desk.finetuning.pairs import read_pairs_folder
from fedlingua.desk.finetuning.result import Result, new_folder, write_result
from fedlingua.desk.finetuning.scores import Scores, label_scores, tagging_scores
from fedlingua.desk.finetuning.settings import FineTuning
from fedlingua.desk.finetuning.splits import SPLITS, Split
from fedlingua.desk.finetuning.tagged import read_tagged
from fedlingua.desk.finetuning.tagging import predicted_tags, tagging_examples

Answers = list[list[int]]
Report = Callable[[Epoch], None]


@dataclass(frozen=True)
class Setting:
    """What is fine-tuned and where. encoder: a directory in transformers' layout. max_tokens, name: as load_encoder takes them.
    note: is told how far it is.
    """

    encoder: Path
    data: Path
    to: Path
    max_tokens: int | None = None
    device: str = "cpu"
    threads: int = 1
    name: str = ""
    note: Callable[[str], None] = lambda text: None


def finetune_tagging(where: Setting, how: FineTuning, layout: str, report: Report) -> Result:
    """Fine-tune an encoder to tag entities, score dev and test, and write the folder.

    Raises:
        ConfigError, CorpusError, BackboneError: before anything trains.
    """
    started = time.monotonic()
    folder = new_folder(where.to)
    corpus = read_tagged(where.data, layout)
    torch.set_num_threads(where.threads)
    encoder = load_encoder(where.encoder, "ner", corpus.tags, how.seed, where.max_tokens, where.device, where.name)
    examples = {split: tagging_examples(corpus.splits[split], corpus.tags, encoder) for split in SPLITS}

    def tags(split: Split, answered: Answers) -> list[list[str]]:
        return predicted_tags(corpus.splits[split], answered, corpus.tags)

    def score(split: Split, answered: Answers) -> Scores:
        return tagging_scores([sentence.tags for sentence in corpus.splits[split]], tags(split, answered))

    epochs, answered, scores = _trained(encoder, examples, how, score, report, where.note)
    settings = {"layout": layout, "device": where.device, "threads": where.threads}
    seconds = time.monotonic() - started
    result = Result(
        "ner", where.data.resolve().name, corpus.tags, encoder, how, settings, corpus.sizes(), epochs, scores, seconds
    )
    write_result(folder, result, _tag_rows(corpus.splits["test"], tags("test", answered["test"])))
    return result


def finetune_pairs(where: Setting, how: FineTuning, report: Report) -> Result:
    """Fine-tune an encoder to label marked mentions, score dev and test, and write the folder.

    Raises:
        ConfigError, CorpusError, BackboneError: before anything trains.
    """
    started = time.monotonic()
    folder = new_folder(where.to)
    corpus = read_pairs_folder(where.data)
    labels = corpus.labels
    torch.set_num_threads(where.threads)
    encoder = load_encoder(where.encoder, "pairs", labels, how.seed, where.max_tokens, where.device, where.name)
    add_markers(encoder, how.seed)
    examples: dict[Split, list[Example]] = {}
    sizes = corpus.sizes()
    for split in SPLITS:
        examples[split], sizes[split]["shortened"] = pair_examples(corpus.splits[split], labels, encoder)

    def score(split: Split, answered: Answers) -> Scores:
        return label_scores([marked.label for marked in corpus.splits[split]], [labels[number] for [number] in answered])

    epochs, answered, scores = _trained(encoder, examples, how, score, report, where.note)
    settings = {"device": where.device, "threads": where.threads}
    seconds = time.monotonic() - started
    result = Result("pairs", where.data.resolve().name, labels, encoder, how, settings, sizes, epochs, scores, seconds)
    gold = [marked.label for marked in corpus.splits["test"]]
    write_result(folder, result, ((wanted, labels[number]) for wanted, [number] in zip(gold, answered["test"], strict=True)))
    return result


def _trained(
    encoder: Encoder,
    examples: Mapping[Split, Sequence[Example]],
    how: FineTuning,
    score: Callable[[Split, Answers], Scores],
    report: Report,
    note: Callable[[str], None],
) -> tuple[list[Epoch], dict[Split, Answers], dict[str, Scores]]:
    """All epochs; answers and scores of dev and test by the best one's weights."""
    pad_id = int(encoder.tokenizer.pad_token_id or 0)

    def answered(split: Split) -> Answers:
        return answers(encoder.model, examples[split], pad_id, how)

    def dev_f1() -> float:
        return score("dev", answered("dev")).micro_f1

    with Pace(note) as pace:
        epochs = fine_tune(encoder.model, examples["train"], pad_id, how, dev_f1, report, pace)
        found: dict[Split, Answers] = {"dev": answered("dev"), "test": answered("test")}
    return epochs, found, {split: score(split, answers) for split, answers in found.items()}


def _tag_rows(sentences: Sequence[Tagged], predicted: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Token, gold tag, predicted tag; a blank line after each sentence."""
    for sentence, tags in zip(sentences, predicted, strict=True):
        yield from zip(sentence.tokens, sentence.tags, tags, strict=True)
        yield ()
