"""Adapters on disk, and at another scale."""
