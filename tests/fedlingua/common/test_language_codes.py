"""Every code of every family is reached by one BCP-47 code, and a language never by another's.

model_languages.txt: MADLAD-400's tokens <2...> as its vocabulary has them, and the target languages of five of Marian's models.
"""

import re
from pathlib import Path

import pytest
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_100
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.codec_marian import MarianCodec
from fedlingua.backbones.codec_t5 import T5Codec
from fedlingua.common.errors import BackboneError
from fedlingua.common.language_codes import bcp47, known_as, meant
from fedlingua.common.languages import Direction, normal_code

_LINES = Path(__file__).with_name("model_languages.txt").read_text().splitlines()
_LISTS = {name: codes.split() for name, codes in (line.split(": ") for line in _LINES)}
MADLAD, MARIAN = _LISTS.pop("madlad400"), _LISTS


class Tokenizer:
    """The part of a family's tokenizer that tells its languages."""

    eos_token_id = pad_token_id = 0

    def __init__(self, tokens: list[str]) -> None:
        self._ids = {token: number for number, token in enumerate(tokens, start=100)}
        self.get_added_vocab = self.get_vocab = lambda: self._ids
        self.convert_tokens_to_ids = self._ids.__getitem__


def codec_of(name: str) -> Codec:
    if name == "nllb":
        return Codec(Tokenizer(NLLB))
    if name == "madlad":
        return T5Codec(Tokenizer(["<pad>", "a", *MADLAD]))  # type: ignore[arg-type]
    tokenizer = Tokenizer([f">>{code}<<" for code in MARIAN[name]] if name in MARIAN else [])
    if name in MARIAN:
        tokenizer.supported_language_codes = [*tokenizer.get_vocab()]  # type: ignore[attr-defined]
        return MarianCodec(tokenizer)  # type: ignore[arg-type]
    codes = MBART_50 if name == "mbart-50" else M2M_100["m2m100"]
    tokenizer.lang_code_to_id = {code: number for number, code in enumerate(codes, start=100)}  # type: ignore[attr-defined]
    return Codec(tokenizer)


COUNTS = {"nllb": 202, "m2m-100": 100, "mbart-50": 52, "madlad": 454} | {name: len(codes) for name, codes in MARIAN.items()}


@pytest.mark.parametrize("name", COUNTS)
def test_each_of_a_models_codes_is_reached_by_a_code_of_its_own_and_back(name: str) -> None:
    codec = codec_of(name)
    assert len(codec.writes) == len(set(codec.language_ids.values())) == len(set(codec.language_codes.values())) == COUNTS[name]
    for code, token in codec.language_codes.items():
        assert normal_code(code) == code  # what a user writes arrives as it is listed
        assert codec.language_code(code) == token
        assert codec.language_id(code) == codec.language_ids[code]
        codec.check([Direction(code, code)])


TOKENS = {
    "nllb": {
        "zho_Hans": "zh zh-Hans zh-CN zh-SG cmn",
        "zho_Hant": "zh-Hant zh-TW zh-HK zh-Hant-HK",
        "nob_Latn": "no nb",
        "nno_Latn": "nn",
        "kas_Arab": "ks",
        "kas_Deva": "ks-Deva",
        "arb_Arab": "ar arb ar-EG",
        "arz_Arab": "arz",
        "pes_Arab": "fa pes fa-IR",
        "prs_Arab": "fa-AF prs",
        "pbt_Arab": "ps pbt",
        "quy_Latn": "qu quy",
        "fuv_Latn": "ff fuv",
        "twi_Latn": "tw",
        "aka_Latn": "ak",
        "swh_Latn": "sw swh",
        "zsm_Latn": "ms zsm",
        "est_Latn": "et ekk",
        "lvs_Latn": "lv lvs",
        "ltg_Latn": "ltg",
        "npi_Deva": "ne npi",
        "ory_Orya": "or ory",
        "plt_Latn": "mg plt",
        "azj_Latn": "az azj",
        "azb_Arab": "azb",
        "uzn_Latn": "uz uzn",
        "ydd_Hebr": "yi ydd ji",
        "kmr_Latn": "ku kmr",
        "ckb_Arab": "ckb",
        "ayr_Latn": "ay ayr",
        "grn_Latn": "gn gug",
        "gaz_Latn": "om gaz",
        "khk_Cyrl": "mn khk",
        "als_Latn": "sq als",
        "dik_Latn": "din dik",
        "knc_Latn": "kr knc",
        "knc_Arab": "kr-Arab knc-Arab",
        "tgl_Latn": "tl fil",
        "sat_Beng": "sat sat-Beng",
        "crh_Latn": "crh",
        "acm_Arab": "acm",
        "kor_Hang": "ko ko-Hang",
        "por_Latn": "pt pt-BR",
        "heb_Hebr": "he iw",
    },
    "m2m-100": {"zh": "zh zh-Hant cmn", "no": "no nb nn", "ns": "nso ns", "tl": "tl fil", "ps": "ps pbt", "ar": "ar arb"},
    "mbart-50": {"zh_CN": "zh zh-Hant", "fa_IR": "fa pes", "sw_KE": "sw swh", "pt_XX": "pt pt-BR"},
    "madlad": {
        "<2zh>": "zh zh-Hans",
        "<2zh_Hant>": "zh-Hant zh-TW",
        "<2sr>": "sr",
        "<2sh>": "sr-Latn sh",
        "<2no>": "no nb",
        "<2fil>": "fil tl",
        "<2ber>": "ber",
        "<2ber_Latn>": "ber-Latn",
        "<2kr_Arab>": "kr-Arab",
        "<2nan_Latn_TW>": "nan",
        "<2fr_CA>": "fr-CA",
        "<2fr>": "fr fr-FR",
    },
    "opus-mt-en-ROMANCE": {
        ">>pt<<": "pt pt-AO",
        ">>pt_br<<": "pt-BR",
        ">>pt_BR<<": "pt-x-br",
        ">>es<<": "es es-BO",
        ">>es_MX<<": "es-MX",
    },
    "opus-mt-en-mul": {
        ">>zho_Hans<<": "zh",
        ">>zho_Hant<<": "zh-TW",
        ">>cmn_Hans<<": "cmn",
        ">>tuk_Latn<<": "tk",
        ">>tuk<<": "tk-x-tuk",
        ">>tat<<": "tt",
        ">>srp_Cyrl<<": "sr",
        ">>kur_Arab<<": "ku-Arab",
        ">>nob<<": "no nb",
        ">>nob_Hebr<<": "nb-Hebr",
        ">>zsm_Latn<<": "ms",
        ">>pes<<": "fa",
        ">>ara<<": "ar",
    },
    "opus-mt-en-zh": {">>cmn_Hans<<": "zh zh-CN", ">>cmn_Hant<<": "zh-Hant zh-HK", ">>yue_Hant<<": "yue", ">>wuu<<": "wuu"},
    "opus-mt-en-gem": {">>nob<<": "no", ">>yid<<": "yi ydd"},
    "opus-mt-en-sla": {">>srp_Cyrl<<": "sr", ">>srp_Latn<<": "sr-Latn sh", ">>bos_Latn<<": "bs"},
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_language_gets_the_token_of_its_script_and_of_its_usual_member(name: str) -> None:
    codec = codec_of(name)
    for token, codes in TOKENS[name].items():
        assert {code: codec.language_code(normal_code(code) or code) for code in codes.split()} == dict.fromkeys(
            codes.split(), token
        )


@pytest.mark.parametrize(
    ("name", "language", "choices"),
    [
        ("nllb", "tmh", "taq, taq-Tfng"),
        ("nllb", "az-Arab", "azb-Arab"),
        ("opus-mt-en-mul", "ff", "fuc, fuv"),
        ("opus-mt-en-mul", "hmn", "hnj-Latn, mww"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_choices(name: str, language: str, choices: str) -> None:
    with pytest.raises(BackboneError, match=f"no language {language!r}; name which it is: {choices}; it has"):
        codec_of(name).check([Direction("en" if name == "nllb" else language, language)])


def test_a_script_that_a_model_with_scripts_lacks_is_refused_even_where_it_names_none() -> None:
    assert [meant(code, codec_of("nllb").writes) for code in ("ar-Latn", "sr-Latn", "sat-Olck", "zh-Bopo")] == [[], [], [], []]
    three = Codec(Tokenizer(["eng_Latn", "zho_Hans", "arb_Latn"]))  # as some cut a vocabulary down
    assert three.language_code("ar-Latn") == "arb_Latn"
    two = Codec(Tokenizer(["eng_Latn", "zho_Hans"]))
    two.check([Direction("en", "zh")])
    with pytest.raises(BackboneError, match="no language 'zh-Hant'"):
        two.check([Direction("en", "zh-Hant")])


@pytest.mark.parametrize(
    ("side", "languages"), [("en", {"en"}), ("eng", {"en"}), ("zho", {"zh"}), ("gem", set()), ("ROMANCE", set()), (None, set())]
)
def test_a_marian_models_side_is_a_language_or_a_group_that_lists_none(side: str | None, languages: set[str]) -> None:
    tokenizer = Tokenizer([])
    tokenizer.source_lang = tokenizer.target_lang = side  # type: ignore[attr-defined]
    codec = MarianCodec(tokenizer)  # type: ignore[arg-type]
    assert codec.reads == codec.writes == languages


def test_who_knows_few_codes_calls_a_language_by_a_broader_one() -> None:
    assert [known_as(code, ["zh", "no", "ns"]) for code in ("zh-Hant", "nb", "nso", "yue")] == ["zh", "no", "ns", None]
    assert known_as("zh-Hant-TW", ["zh", "zh-Hant"]) == "zh-Hant"
    assert meant("es", ["es-AR", "es-MX", "pt"]) == ["es-AR", "es-MX"]
    assert meant("es", ["es-MX", "pt"]) == ["es-MX"]
    assert meant("pt-PT", ["pt-BR"]) == []


def test_names_do_not_depend_on_the_order_of_the_codes() -> None:
    for codes in ([*NLLB], [*MARIAN["opus-mt-en-ROMANCE"]], [*MARIAN["opus-mt-en-mul"]]):
        assert bcp47(codes) == bcp47(reversed(codes))


def test_tokens_of_madlad_that_name_no_language_are_none() -> None:
    named = {match[1] for token in MADLAD if (match := re.fullmatch("<2(.*)>", token))}
    assert named - {token[2:-1] for token in codec_of("madlad").language_codes.values()} > {"Latn", "CA", "translate", "mass", ""}
