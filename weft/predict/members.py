"""Names and limits of an ensemble's folder. Importable without torch."""

MEMBERS = "members"  # the folder of the members: their model folders, or in a run, their runs
SECTION = "ensemble"  # of model.json
MAX_MEMBERS = 64
