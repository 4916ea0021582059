"""Shared by all packages: errors, files, languages, units."""
