"""Fuzzing: the compiled decoder with sanitizers, and the way of records from a socket to messages."""
