"""Other people's checkpoints <-> ours: one table of names a family, strict both ways."""
