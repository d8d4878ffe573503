"""What came out: read, held against the predictions, and told."""
