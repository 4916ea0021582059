"""Pre-trained translation models, frozen, and the adapters inside them."""
