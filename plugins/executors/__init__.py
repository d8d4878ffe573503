"""Executors: they run search, training and audit jobs."""
