"""The code that runs inside a sandbox worker; it imports nothing from outside the sandbox."""
