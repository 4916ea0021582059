"""When a setting is the paper's own, so that its figures may stand beside ours: Liu et al. 2023, §3.1 and §3.3, and its code."""

from fedlingua.backbones.pinned import PINNED_REVISIONS
from fedlingua.config import PAPER_LEARNING_RATES, Scalar, Settings, resolve

BACKBONE = "facebook/mbart-large-50-many-to-many-mmt"
FEDERATIONS = tuple(f"experiments/federations/{name}.toml" for name in ("ted2020_m2en", "europarl_m2m", "ted2020_uniform"))
"""Tables 1, 2, 4, 5, 7 and 8: sites, sizes and splits as in its appendices A and C."""

SETTING: dict[str, Scalar] = {
    "backbone": BACKBONE,
    "rounds": 5,
    "patience": 0,
    "best-by": "examples",
    "batch-size": 8,
    "accumulation": 16,
    "local-epochs": 1,
    "whole-steps": True,
    "tensor-set": "",
    "adapter-dim": 64,
    "adapter-init": "paper",
    "max-tokens": 256,
    "max-decode-tokens": 256,
    "beam": 5,
    "score-split": "test",
    "cluster-by": "group",
    "num-clusters": 0,
    "quorum": 1.0,
    "max-update-norm": 0.0,
    "strategy": "",
}
"""Key -> the paper's value. Method, aggregation, adapter-layers and cluster-parts are what its rows differ in."""


def unlike_the_paper(settings: Settings) -> dict[str, tuple[Scalar, str]]:
    """Key -> (the row's value, the paper's in words), for every key that differs; none: the setting is the paper's."""
    flat = settings.flat()
    unlike = {key: (flat[key], repr(wanted)) for key, wanted in SETTING.items() if flat[key] != wanted}
    if settings.backbone_revision not in ("", PINNED_REVISIONS[BACKBONE]):
        unlike["backbone-revision"] = (settings.backbone_revision, repr(PINNED_REVISIONS[BACKBONE]))
    paper_rate = PAPER_LEARNING_RATES[settings.trained_set]
    if settings.step_learning_rate != paper_rate:
        unlike["learning-rate"] = (settings.learning_rate, f"{paper_rate:g}")
    if settings.federation_path.resolve() not in {resolve(name).resolve() for name in FEDERATIONS}:
        unlike["federation"] = (settings.federation, f"one of {', '.join(FEDERATIONS)}")
    return unlike
