"""What a search tells of searches and trainings that were not done yet."""
