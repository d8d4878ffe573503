"""Verifiers: they decide whether a response is right."""
