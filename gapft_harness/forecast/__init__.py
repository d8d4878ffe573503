"""``gapft forecast``: what a search tells before anything is trained."""
