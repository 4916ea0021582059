"""Translating with the models of a completed run, a site's memory and terms having their say."""
