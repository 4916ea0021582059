"""Marian's students as backbones: read the files that Firefox and Bergamot translate with, and write a folder that transformers reads."""
