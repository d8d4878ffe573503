"""One file or folder an experiment; none knows another."""
