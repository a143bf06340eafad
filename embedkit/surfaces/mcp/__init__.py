"""The MCP server: ask, consensus, search and what is known of them, for programs that speak the protocol.

What a tool does is in ``tools``, which knows nothing of the protocol; ``server`` puts tools behind it; ``stdio`` and
``http`` are the two ways in. Everything runs under trio: a request that is cancelled is a cancelled scope.
"""
