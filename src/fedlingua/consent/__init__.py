"""A site's consent: its file, limits and approvals, and the log of requests."""
