"""What people sit at: commands, reports, suites, serving. Nothing that a node runs imports it, and no bundle holds it."""
