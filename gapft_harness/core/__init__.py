"""Types and functions that all packages share: errors, records, random streams, files.

This is the lowest layer: it imports no other package of the harness.
"""
