"""One folder an experiment; none knows another."""
