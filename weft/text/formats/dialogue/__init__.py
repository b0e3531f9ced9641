"""Dialogues: turns, examples of tasks, databases of entities, copies with other values."""
