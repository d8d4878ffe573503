"""Plugin contract: hooks, the protocols that plugins implement, and plugin discovery."""
