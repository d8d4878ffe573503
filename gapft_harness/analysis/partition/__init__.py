"""The partition into G, S and U: how stable it is, and what its rates would be by chance."""
