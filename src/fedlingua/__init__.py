"""Federated training of multilingual translation models: what both sides of the wire share."""
