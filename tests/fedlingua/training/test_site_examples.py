"""What a site's text makes no example of is told by its language."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.texts import SiteText
from fedlingua.settings.checks import settings_from
from fedlingua.training.site_examples import sequences_of


@pytest.mark.parametrize("name", ["bert", "xlm-roberta-xl"])
def test_a_text_of_which_the_tokenizer_knows_nothing_is_told_by_its_language(
    name: str, family_folder: Callable[[str], Path], run_config: dict[str, Any]
) -> None:
    codec = load_backbone(family_folder(name), name).codec
    settings = replace(settings_from(run_config), task="masked-language")
    splits: Any = {"train": [Pair("አማርኛ", "አማርኛ")], "dev": [], "test": []}
    text = SiteText(Direction("am", "am"), Account(), splits)
    assert sequences_of(text, "dev", codec, settings) == []
    with pytest.raises(
        BackboneError, match="knows nothing of 1 train sentences in Amharic; give a backbone that reads this language"
    ):
        sequences_of(text, "train", codec, settings)
