"""Read a run's tables as typed arrays; no statistics."""
