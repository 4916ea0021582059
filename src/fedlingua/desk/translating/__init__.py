"""Translate with the models of a completed run, a site's memory and a glossary of terms."""
