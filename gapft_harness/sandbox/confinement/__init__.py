"""How a process gives up what it must not have: namespaces, Landlock, seccomp, limits."""
