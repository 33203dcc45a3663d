"""Verbs: what agents say. Each is built from the few methods of `Runtime`."""
