"""What a task's YAML says, and what is wrong with it."""
