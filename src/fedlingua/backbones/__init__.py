"""Pre-trained models, frozen, and what is attached to them for training, such as adapters."""
