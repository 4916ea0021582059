"""Hub ids that this project knows, each pinned to the commit of its repository that was reviewed."""

PINNED_REVISIONS = {
    "FacebookAI/xlm-roberta-base": "e73636d4f797dec63c3081bb6ed5c7b0bb3f2089",
    "facebook/m2m100_418M": "55c2e61bbf05dfb8d7abccdc3fae6fc8512fd636",
    "facebook/mbart-large-50-many-to-many-mmt": "e30b6cb8eb0d43a0b73cab73c7676b9863223a30",
}

LICENCES = {
    "FacebookAI/xlm-roberta-base": "mit",
    "facebook/m2m100_418M": "mit",
}
"""Hub id -> licence according to the repository's card on the hub; nothing is claimed about other repositories."""
