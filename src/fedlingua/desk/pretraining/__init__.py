"""Train small backbones from scratch: from a recipe, or from the phrasebook for the demo."""
