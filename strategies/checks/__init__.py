"""What a reply has to be before it counts."""
