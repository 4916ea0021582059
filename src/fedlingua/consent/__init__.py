"""What a site has agreed to: its file, limits, approvals, and the log of what was asked of it."""
