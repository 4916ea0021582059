"""A finished run personalized again: its last phase, an alpha learned beside it, and 21 others."""
