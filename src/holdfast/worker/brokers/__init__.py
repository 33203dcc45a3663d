"""Adapters of brokers, a small file each, imported when a queue of the broker is read: each needs a package of its own."""
