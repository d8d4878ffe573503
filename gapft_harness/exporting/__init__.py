"""``gapft export``: write a run's sealed data in formats of other tools."""
