"""The plugin contract: hooks, what plugins implement and receive, and how they are found."""
