"""Frozen pre-trained models, and the modules attached to them for training, such as adapters."""
