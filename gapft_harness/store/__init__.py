"""The store: finished work, under keys computed from all inputs; it is never changed."""
