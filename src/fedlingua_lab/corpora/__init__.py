"""Recipes for published corpora: the splits and sizes of the papers."""
