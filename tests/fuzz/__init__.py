"""Fuzzing of the compiled decoder with the address and undefined-behavior sanitizers."""
