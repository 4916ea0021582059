"""An encoder small enough to learn within seconds, and annotated text that it can learn."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaTokenizer,
)

DRUGS = ("aspirin", "heparin", "opium", "vitamin c")
OTHERS = ("the", "patient", "took", "for", "days", "and", "slept", "well", "no", "pain")
WORDS = sorted({word for phrase in (*DRUGS, *OTHERS, "treats", "causes", ".") for word in phrase.split()})
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def build_xlmr(directory: Path, words: Iterable[str] = WORDS, positions: int = 64) -> Path:
    """An XLM-R with random weights whose pieces are the words and the letters."""
    pieces = [*(f"▁{word}" for word in words), "▁", *"abcdefghijklmnopqrstuvwxyz0123456789-."]
    vocab = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((p, -1.0) for p in dict.fromkeys(pieces)),
        ("<mask>", 0.0),
    ]
    tokenizer = XLMRobertaTokenizer(vocab=vocab)
    # RoBERTa's positions begin after the padding's.
    config = XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=positions + 2, pad_token_id=1, **SHAPE)
    torch.manual_seed(7)
    XLMRobertaForMaskedLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def build_bert(directory: Path) -> Path:
    """A BERT of the same size."""
    vocab = {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    torch.manual_seed(7)
    BertForMaskedLM(BertConfig(vocab_size=len(vocab), max_position_embeddings=64, **SHAPE)).save_pretrained(directory)
    BertTokenizer(vocab=vocab).save_pretrained(directory)
    return directory


def build_roberta(directory: Path) -> Path:
    """A RoBERTa of the same size, whose only merge is the space before an "a"."""
    vocab = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ", *"abcde", "Ġa"])}
    torch.manual_seed(7)
    config = RobertaConfig(vocab_size=len(vocab), max_position_embeddings=66, pad_token_id=1, **SHAPE)
    RobertaForMaskedLM(config).save_pretrained(directory)
    RobertaTokenizer(vocab=vocab, merges=[("Ġ", "a")]).save_pretrained(directory)
    return directory


def write_tagging(folder: Path, sizes: Mapping[str, int] | None = None) -> Path:
    """Sentences in which every drug is tagged; "vitamin c" is one drug of two words."""
    rng = random.Random(5)
    folder.mkdir()
    for split, size in (sizes or {"train": 120, "devel": 30, "test": 30}).items():
        lines = []
        for _ in range(size):
            for phrase in rng.choices([*DRUGS, *OTHERS], k=rng.randint(4, 9)):
                first, *rest = phrase.split()
                lines.append(f"{first}\t{'B-Drug' if phrase in DRUGS else 'O'}")
                lines += [f"{word}\tI-Drug" for word in rest]
            lines.append("")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_pairs(folder: Path, with_tail: bool = True) -> Path:
    """Which verb stands between the marked two; or, without a tail, whether "no" stands before the marked one."""
    rng = random.Random(6)
    folder.mkdir()
    for split, size in (("train", 160), ("devel", 30), ("test", 30)):
        rows = []
        for _ in range(size):
            drug = rng.choice(DRUGS)
            if with_tail:
                verb = rng.choice(["treats", "causes"])
                text = f"the {drug} {verb} pain ."
                tail = text.index("pain")
                rows.append({"text": text, "head": [4, 4 + len(drug)], "tail": [tail, tail + 4], "label": verb})
            else:
                absent = rng.random() < 0.5
                text = f"the patient took {'no' if absent else 'the'} {drug} ."
                start = text.index(drug)
                rows.append({"text": text, "head": [start, start + len(drug)], "label": "absent" if absent else "present"})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
