"""Translate with the models of a completed run and a glossary of terms."""
