"""The HTML pages of suites and comparisons."""
