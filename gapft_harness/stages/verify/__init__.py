"""``gapft verify``: whether a run's arms differ in nothing but what its recipe declares."""
