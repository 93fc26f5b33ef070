"""Fuzzing of the compiled decoder with the address and undefined-behaviour sanitizers."""
