"""The devices that a training takes: processes, memory, speed."""
