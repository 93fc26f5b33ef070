"""Fuzzers of C modules that have a twin in Python: equal calls of both must have equal results and errors."""
