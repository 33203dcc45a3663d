"""The client, for programs outside of runs: its parts, its handles on runs, and its edge for the command line and the server."""
