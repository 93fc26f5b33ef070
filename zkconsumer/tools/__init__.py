"""The command ``zkconsumer``: one module per tool, and the modules that the tools share.

Each tool runs in the main thread of its own process; ``consumer-perf`` also starts one thread per stream. No other
package uses this one. ``cli`` calls each tool module's ``add_to``, which registers the function that runs the tool.
"""
