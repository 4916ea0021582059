"""What every room uses: errors, files, languages, units, processes."""
