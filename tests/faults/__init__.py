"""Fault tests with real servers: faults are reported, members recover, and no znodes or threads remain."""
