"""What a curious server could read from the updates of a finished run."""
