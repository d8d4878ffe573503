"""Train the policies of the demonstrations; not included in the wheel."""
