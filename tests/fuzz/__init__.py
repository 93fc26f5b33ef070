"""Fuzzing: the C modules with sanitizers, and the way of records from a socket to messages."""
