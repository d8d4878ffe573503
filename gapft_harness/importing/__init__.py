"""Responses with verdicts that are there already, as a run's search (``gapft import``)."""
