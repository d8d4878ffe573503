"""``gapft import``: use existing responses and verdicts as a run's search."""
