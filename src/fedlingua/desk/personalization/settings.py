"""How a site goes on by itself, as the user asks for it."""

import math
from dataclasses import dataclass

from fedlingua.common.errors import ConfigError
from fedlingua.settings.config import Settings


@dataclass(frozen=True)
class Personalizing:
    """How a site goes on. epochs: passes at most; alpha_rate: of alpha's own steps; 0 and None take the run's."""

    epochs: int = 0
    learning_rate: float | None = None
    alpha_rate: float = 1.0
    seed: int | None = None

    def check(self) -> None:
        """Refuse what trains nothing.

        Raises:
            ConfigError: names the option.
        """
        if self.epochs < 0:
            raise ConfigError(f"--epochs {self.epochs}: wanted at least 1 pass over the site's training text, or 0 for the run's")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"--learning-rate {self.learning_rate:g}: wanted a number above 0; leave it out for the run's")
        if not 0 < self.alpha_rate < math.inf:
            raise ConfigError(f"--alpha-rate {self.alpha_rate:g}: wanted a number above 0, for example 1")

    def seed_of(self, settings: Settings) -> int:
        """Decides order, masks and dropout, with the site's name."""
        return settings.seed if self.seed is None else self.seed
