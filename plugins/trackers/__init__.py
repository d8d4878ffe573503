"""Trackers: they show a training while it runs."""
