"""When a setting is a paper's own, so that its figures may stand beside ours: Liu et al. 2023 (adapters in clusters), Chu et al. 2024
(MetaSend)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedlingua.backbones.pinned import PINNED_REVISIONS
from fedlingua.common.files import resolve
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.methods import PAPER_LEARNING_RATES


@dataclass(frozen=True)
class Paper:
    """by: whose it is. setting: key -> the paper's value, in every row. federations: files of its sites, sizes and splits. of_row: what
    differs between its rows all the same, such as a learning rate of each tensor set.
    """

    by: str
    backbone: str
    federations: tuple[str, ...]
    setting: Mapping[str, Scalar]
    of_row: Callable[[Settings], Mapping[str, Scalar]]


def _federations(*names: str) -> tuple[str, ...]:
    return tuple(f"experiments/federations/{name}.toml" for name in names)


FED_MNMT = Paper(
    by="Liu et al. 2023",
    backbone="facebook/mbart-large-50-many-to-many-mmt",
    # Tables 1, 2, 4, 5, 7 and 8: sites, sizes and splits as in its appendices A and C.
    federations=_federations("ted2020_m2en", "europarl_m2m", "ted2020_uniform"),
    # §3.1 and §3.3, and its code. Method, aggregation, adapter-layers and cluster-parts are what its rows differ in.
    setting={
        "rounds": 5,
        "patience": 0,
        "best-by": "examples",
        "batch-size": 8,
        "accumulation": 16,
        "local-epochs": 1,
        "whole-steps": True,
        "tensor-set": "",
        "selection": "",
        "backbone-weights": "published",
        "adapter-dim": 64,
        "adapter-init": "paper",
        "adapter-place": "after-dropout",
        "max-tokens": 256,
        "max-decode-tokens": 256,
        "beam": 5,
        "score-split": "test",
        "cluster-by": "group",
        "num-clusters": 0,
        "quorum": 1.0,
        "max-update-norm": 0.0,
        "strategy": "",
        "server-optimizer": "",
    },
    of_row=lambda settings: {"learning-rate": PAPER_LEARNING_RATES[settings.trained_set]},
)
METASEND = Paper(
    by="Chu et al. 2024",
    backbone="facebook/m2m100_418M",
    # §4.1, appendix A, and the journal's §V-D for the smaller ones.
    federations=_federations(
        *(f"{corpus}_{kind}" for corpus in ("mtnt", "uncorpus") for kind in ("noniid", "iid", "noniid_low", "iid_low", "one_low"))
    ),
    # §4.3, appendix B. Method, selection's own keys, meta-neurons, meta-batches and backbone-weights are what its rows differ in; what it
    # leaves open (beam, lengths, what stands for a tensor that was not sent) is as in pyproject.toml.
    setting={
        "patience": 0,
        "batch-size": 2,
        "accumulation": 1,
        "local-epochs": 1,
        "aggregation": "fed-avg",
        "tensor-set": "",
        "score-split": "test",
        "quorum": 1.0,
        "max-update-norm": 0.0,
        "strategy": "",
        "server-optimizer": "",
        "meta-batch-size": 2,
        "meta-learning-rate": 1e-3,
        "meta-bytes-weight": 0.0,
        "apf-window": 4,
    },
    of_row=lambda settings: {"learning-rate": 5e-3, "rounds": 50 if settings.how.pooled else 25},
)
PAPERS = {"fed-mnmt": FED_MNMT, "metasend": METASEND}
"""What `[paper] of` may name."""


def unlike_the_paper(settings: Settings, paper: Paper = FED_MNMT) -> dict[str, tuple[Scalar, str]]:
    """Key -> (the row's value, the paper's in words), for every key that differs; none: the setting is the paper's."""
    flat = {**settings.flat(), "learning-rate": settings.step_learning_rate}
    wanted = {"backbone": paper.backbone, **paper.setting, **paper.of_row(settings)}
    unlike = {key: (flat[key], _words(value)) for key, value in wanted.items() if flat[key] != value}
    pinned = PINNED_REVISIONS[paper.backbone]
    if settings.backbone_revision not in ("", pinned):
        unlike["backbone-revision"] = (settings.backbone_revision, repr(pinned))
    if settings.federation_path.resolve() not in {resolve(name).resolve() for name in paper.federations}:
        unlike["federation"] = (settings.federation, f"one of {', '.join(paper.federations)}")
    return unlike


def _words(value: Scalar) -> str:
    return f"{value:g}" if type(value) is float else repr(value)
