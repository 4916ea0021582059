"""The settings of the papers Liu et al. 2023 and Chu et al. 2024 (MetaSend). A paper's figures are shown only beside runs with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedlingua.backbones.published import PINNED_REVISIONS
from fedlingua.common.files import resolve
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.methods import PAPER_LEARNING_RATES
from fedlingua.settings.options import PAPERS as NAMES
from fedlingua.settings.table import OPTIONS


@dataclass(frozen=True)
class Paper:
    """A paper's setting. The table of options holds the values shared by all rows of the paper's tables; this class holds the rest.

    short: The paper's name in the table of options. federations: Names of files in experiments/federations with its sites, sizes and
    splits. of_row: Returns the values that depend on the row, such as the learning rate of its tensor set.
    """

    short: str
    backbone: str
    federations: tuple[str, ...]
    of_row: Callable[[Settings], Mapping[str, Scalar]]

    @property
    def by(self) -> str:
        return NAMES[self.short]

    def setting(self, settings: Settings) -> dict[str, Scalar]:
        """Return option key -> the paper's value for one row."""
        of_every_row = {key: option.papers[self.short] for key, option in OPTIONS.items() if self.short in option.papers}
        return {"backbone": self.backbone, **of_every_row, **self.of_row(settings)}


FED_MNMT = Paper(
    short="liu",
    backbone="facebook/mbart-large-50-many-to-many-mmt",
    # Tables 1, 2, 4, 5, 7 and 8: sites, sizes and splits as in its appendices A and C.
    federations=("ted2020_m2en", "europarl_m2m", "ted2020_uniform"),
    # §3.1, §3.3 and the paper's code. Rows differ in method, aggregation, adapter.layers and cluster.parts.
    of_row=lambda settings: {"learning-rate": PAPER_LEARNING_RATES[settings.trained_set]},
)
METASEND = Paper(
    short="chu",
    backbone="facebook/m2m100_418M",
    # §4.1 and appendix A; the smaller federations are from §V-D of the journal version.
    federations=tuple(
        f"{corpus}_{kind}" for corpus in ("mtnt", "uncorpus") for kind in ("noniid", "iid", "noniid_low", "iid_low", "one_low")
    ),
    # §4.3 and appendix B. Rows differ in method, the rules' own keys, meta.neurons, meta.batches and backbone-weights. What the paper
    # does not specify (beam, lengths, the value that counts for a tensor that was not sent) is as in pyproject.toml.
    of_row=lambda settings: {"learning-rate": 5e-3, "rounds": 50 if settings.how.pooled else 25},
)
PAPERS = {"fed-mnmt": FED_MNMT, "metasend": METASEND}
"""Name in `[paper] of` -> the paper."""


def unlike_the_paper(settings: Settings, paper: Paper = FED_MNMT) -> dict[str, tuple[Scalar, str]]:
    """Return key -> (the row's value, the paper's value as text) for every key that differs; empty if the setting is the paper's."""
    flat = {**settings.flat(), "learning-rate": settings.step_learning_rate}
    words = {key: f"{value:g}" if type(value) is float else repr(value) for key, value in paper.setting(settings).items()}
    unlike = {key: (flat[key], words[key]) for key, value in paper.setting(settings).items() if flat[key] != value}
    pinned = PINNED_REVISIONS[paper.backbone]
    if settings.backbone_revision not in ("", pinned):
        unlike["backbone-revision"] = (settings.backbone_revision, repr(pinned))
    files = [f"experiments/federations/{name}.toml" for name in paper.federations]
    if settings.federation_path.resolve() not in {resolve(file).resolve() for file in files}:
        unlike["federation"] = (settings.federation, f"one of {', '.join(files)}")
    return unlike
