"""A small MCP server over stdio, run as a process of its own; it writes down what it was asked for."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf", instructions="Ask nicely.")


@server.tool()
def book(title: str) -> str:
    """Whether the shelf has a book."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as log:
        log.write(f"{title}\n")
    return f"has {title}"


if __name__ == "__main__":
    server.run()
