"""Check that a run's sites fit its task, before anything is loaded."""

from collections.abc import Collection

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.scores import check_tokenizers


def check_task(task: str, directions: Collection[Direction]) -> None:
    """Refuse directions that do not fit the task, and those whose result cannot be scored on this machine.

    Raises:
        ConfigError: names the first such direction, and what to do.
    """
    for direction in directions:
        if task == "translation" and direction.is_one_language:
            raise ConfigError(
                f"task = 'translation', and a site has text in one language ({direction}); give it a direction, or "
                "task = 'masked-language'"
            )
        if task == "masked-language" and not direction.is_one_language:
            raise ConfigError(
                f"task = 'masked-language', and a site has the direction {direction}; give it a language, or task = 'translation'"
            )
    if task == "translation":
        check_tokenizers(directions)
