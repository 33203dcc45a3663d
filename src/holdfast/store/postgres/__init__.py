"""The PostgreSQL store: many workers on many computers. Needs `pip install "holdfast[postgres]"`."""
