"""Hub ids that this project knows, each at one commit of its repository: what was looked at is what is loaded."""

PINNED_REVISIONS = {
    "FacebookAI/xlm-roberta-base": "e73636d4f797dec63c3081bb6ed5c7b0bb3f2089",
    "facebook/m2m100_418M": "55c2e61bbf05dfb8d7abccdc3fae6fc8512fd636",
    "facebook/mbart-large-50-many-to-many-mmt": "e30b6cb8eb0d43a0b73cab73c7676b9863223a30",
}

LICENCES = {
    "FacebookAI/xlm-roberta-base": "mit",
    "facebook/m2m100_418M": "mit",
}
"""As the cards of these repositories say on the hub; of a repository that is not here none is claimed."""
