"""What single controls add to the part of the report that all have."""
