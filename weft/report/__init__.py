"""Reports: the bake-off, its leaderboard and its page."""
