"""What all packages use: errors, files, languages, units, processes."""
