"""``gapft export``: write a run's data in formats of other tools."""
