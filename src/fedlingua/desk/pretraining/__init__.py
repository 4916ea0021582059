"""Small backbones trained from nothing: from a recipe, or from the phrasebook for the demo."""
