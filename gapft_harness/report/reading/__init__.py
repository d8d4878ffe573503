"""Read a run's sealed tables as typed arrays; no statistics."""
