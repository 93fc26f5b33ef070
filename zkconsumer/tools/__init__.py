"""The command ``zkconsumer``: one module per tool, and the modules that the tools share.

Each tool runs in the main thread of its own process; ``consumer-perf`` also starts one thread per stream. No other
package uses this one. ``catalogue`` lists the tools, and imports the module of the tool that is used.
"""
