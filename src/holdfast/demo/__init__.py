"""`holdfast demo`: an agent is killed twice and still does everything it promised, once."""
