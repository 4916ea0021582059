"""Simulations on a Ray cluster that exists already, of one machine or many."""
