"""Sites that a task is not for are refused with what to do."""

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.tasks import check_task

GERMAN, TO_FRENCH = Direction("de", "de"), Direction("de", "fr")


def test_a_task_takes_its_own_sites() -> None:
    check_task("translation", [TO_FRENCH])
    check_task("masked-language", [GERMAN, Direction("yo", "yo")])


def test_text_in_one_language_is_not_translated() -> None:
    with pytest.raises(ConfigError, match=r"text in one language \(de\); give it a direction, or task = 'masked-language'"):
        check_task("translation", [TO_FRENCH, GERMAN])


def test_a_direction_is_no_text_to_pre_train_on() -> None:
    with pytest.raises(ConfigError, match="a site has the direction de-fr; give it a language, or task = 'translation'"):
        check_task("masked-language", [GERMAN, TO_FRENCH])
