"""Trackers: what shows a training while it runs."""
