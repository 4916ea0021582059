"""A run's scores, from the sums that its sites sent."""
