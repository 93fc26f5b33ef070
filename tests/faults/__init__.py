"""Faults on real servers: what breaks here, recovers, is reported, and leaves nothing behind."""
