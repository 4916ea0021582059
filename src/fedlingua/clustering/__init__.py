"""Who is averaged with whom."""
