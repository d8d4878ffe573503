"""The store: finished work under keys of all that it was made from; it never changes."""
