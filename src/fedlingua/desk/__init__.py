"""What users work with: commands, reports, suites, serving. No node imports it, and no bundle contains it."""
