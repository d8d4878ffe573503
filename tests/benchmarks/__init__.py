"""Measurements (``make bench``): ratios measured in one run; no test asserts a time."""
