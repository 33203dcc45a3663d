"""The server: what `Client` offers, over HTTP. Nothing here is imported unless somebody serves."""
