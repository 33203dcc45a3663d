"""Adapters of brokers, a small file each. Each is imported when a queue of its broker is read, because it needs a package of its own."""
