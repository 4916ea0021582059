"""The aggregation of a cluster's updates, as pure functions."""
