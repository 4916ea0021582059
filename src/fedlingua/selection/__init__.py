"""Which tensors, or numbers, of an update are worth sending."""
