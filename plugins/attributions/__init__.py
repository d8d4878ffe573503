"""Attributions: which training examples correct or break which audit problems."""
