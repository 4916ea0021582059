"""Clusters: which sites are averaged together."""
