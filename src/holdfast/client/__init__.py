"""What programs outside of runs use: the client, its handles on runs, and what waits for news of them."""
