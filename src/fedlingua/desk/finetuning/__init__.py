"""What a pre-trained encoder is good for: tagging, relations and assertions, fine-tuned and scored at one place."""
