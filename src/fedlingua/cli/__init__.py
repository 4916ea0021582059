"""The fedlingua command."""
