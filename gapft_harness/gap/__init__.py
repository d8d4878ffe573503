"""The gap of a task: what a search of it says, under each of the task's own filters."""
