"""``gapft verify``: check that a run's arms differ only in what its recipe declares."""
