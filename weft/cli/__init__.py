"""The command line: one file a verb, heavy imports inside the functions."""
