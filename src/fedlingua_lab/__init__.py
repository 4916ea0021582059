"""For researchers. Not bundled, and imported by nothing else: the desk finds what is plugged in by pyproject.toml's entry points."""

COMMANDS = {
    "suite": (
        "fedlingua_lab.cli.suite",
        "run",
        "Run every row of a suite with every seed and write the table. An interrupted suite continues where it stopped.",
    ),
    "compare": (
        "fedlingua_lab.cli.compare",
        "score",
        "Compare runs by site, with a paired bootstrap, and by cost; show which sites gain by joining.",
    ),
    "personalize": (
        "fedlingua_lab.cli.personalize",
        "compare",
        "Train sites' models on after a run and measure their mixtures with the federation's (Manoel et al. 2022, table 6, figure 3).",
    ),
    "track": (
        "fedlingua_lab.cli.track",
        "watch",
        "Send experiment trackers what they have not received of a run: after its end, or after a tracker was unreachable.",
    ),
    "corpus prepare": (
        "fedlingua_lab.cli.prepare",
        "",
        "Split downloaded corpora as the papers do: Liu et al. 2023 (ted2020, europarl), MetaSend (mtnt, uncorpus).",
    ),
    "audit": ("fedlingua_lab.cli.audit", "corpus", "What a server could read from the messages of a run."),
    "finetune": (
        "fedlingua_lab.cli.finetune",
        "audit",
        "Fine-tune a pre-trained encoder for tagging or classification, and score it.",
    ),
}
"""Name of a command -> its module, the command that it is listed after, and its help."""
