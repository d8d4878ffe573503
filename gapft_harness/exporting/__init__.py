"""``gapft export``: what a run holds, in forms that others read."""
