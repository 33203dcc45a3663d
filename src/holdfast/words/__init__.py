"""Nouns and arithmetic that every layer may use; nothing here reads or writes anything."""
