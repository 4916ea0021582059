"""What is made of a cluster's updates, as pure functions."""
