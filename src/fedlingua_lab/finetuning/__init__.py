"""What a pre-trained encoder is good for: tagging, relations and assertions, fine-tuned by transformers' Trainer and scored."""
