"""Values: data becomes text, and text becomes data again."""
