"""The means to confine a process: namespaces, landlock, seccomp, resource limits."""
