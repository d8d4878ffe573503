"""``gapft gap RUN``: what a search tells before anything is trained."""
