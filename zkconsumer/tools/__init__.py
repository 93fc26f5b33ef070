"""The command ``zkconsumer``: one module per tool, and what the tools share.

Each tool runs in the main thread of a process of its own; ``consumer-perf`` has a thread per stream. No other package
uses this one. ``cli`` calls ``add_to`` of each tool's module, and the function that the tool has registered there.
"""
