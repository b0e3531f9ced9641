"""One folder per theme, one file per claim; each file ends with its EXPERIMENT."""
