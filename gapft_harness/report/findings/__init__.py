"""Compute every figure of a report once."""
