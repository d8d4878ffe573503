"""What runs inside a sandbox's worker; it imports nothing from outside the sandbox."""
