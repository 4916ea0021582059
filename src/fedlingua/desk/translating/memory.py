"""Build a site's memory (`fedlingua.desk.translating.memory_store`) from its text, choose its lambda, and store it beside the model."""

from pathlib import Path
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.corpora.simulated import all_texts, texts_without_leaks
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import SiteText
from fedlingua.desk.personalization.start import check_text_is_here, texts_of_site
from fedlingua.desk.translating.decoding import Decoding, Search
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua.desk.translating.translator import Translator

DEV_SENTENCES = 150
"""Dev sentences that lambda is chosen on; they are translated once for each lambda."""


def text_of_run(models: RunModels, site: str, data_dir: str = "") -> SiteText:
    """Return a site's own text in a run, or raise an error if it is not on this machine. data_dir: the text's folder, if it has moved."""
    settings = models.settings
    where = settings.federation_path, data_dir or settings.data_dir
    check_text_is_here(read_federation(where[0], Path(where[1]).expanduser()), [site], models.run_dir)
    if settings.how.pooled:
        return (texts_without_leaks(*where) if settings.overlap == "remove" else all_texts(*where))[site]
    return texts_of_site(models.run, site, where[1])[site]


def remember(model: TrainedModel, text: SiteText, how: Search, most_keys: int = 0) -> dict[str, Any]:
    """Build the memory of a site's model from its training text, choose its mixing on the dev text, and store it.

    The lambda with the highest BLEU on the dev text is chosen; with 0 the memory is stored but not used.

    Returns:
        Site, file, number of keys, mixing, and what the file says about itself.

    Raises:
        RunError: No train or dev text, or an unsuitable backbone. ConfigError: So many keys need faiss, which is not installed.
    """
    # These import torch: a run that has no models, or no text here, is refused without it.
    from fedlingua.desk.translating.memory_making import choose, choose_mixings, make_memory
    from fedlingua.desk.translating.memory_store import Memory
    from fedlingua.evaluation.scores import bleu_score, score_sums
    from fedlingua.training.translation import encode_pairs

    assert model.memory is not None, model
    dev = text.splits["dev"][:DEV_SENTENCES]
    for split in ("train", "dev"):
        if not text.splits[split]:
            raise RunError(
                f"site {model.site}: there is no {split} text; a memory is built from the first and tuned on the second"
            )
    translator = Translator(model, Decoding(**{**vars(how), "memory": False, "terms": None}))
    backbone, codec = translator.trainable.model, translator.trainable.backbone.codec
    if codec.first_id(model.direction) is None:
        raise RunError(
            f"a memory is made with an M2M-100, NLLB or mBART-50, and the backbone is a {backbone.config.model_type}; go without one"
        )
    train, judged = (encode_pairs(pairs, model.direction, codec, translator.max_tokens) for pairs in (text.splits["train"], dev))

    def bleu(memory: Memory | None) -> float:
        translator.memory = memory
        hypotheses = translator.translate([pair.source for pair in dev])
        return bleu_score(score_sums(hypotheses, [pair.target for pair in dev], model.direction.target))

    with translator.as_used():
        memory = make_memory(backbone, codec, train, translator.fingerprint(), most_keys)
        mixings = choose_mixings(backbone, codec, memory, judged)
    memory = choose(memory, mixings, bleu)
    memory.save(model.memory)
    mixing = {"lambda": memory.mixing.weight, "temperature": memory.mixing.temperature, "neighbours": memory.mixing.neighbours}
    return {"site": model.site, "memory": model.memory, "keys": len(memory.keys), **mixing, **memory.about}
