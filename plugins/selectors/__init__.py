"""Selectors: they choose the verified responses that fill the training budget."""
