"""Secure sums: the server learns the sum of a cluster's updates, and of no smaller group."""
