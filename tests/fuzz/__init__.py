"""Mutated batches against the compiled decoder, under the address and undefined-behaviour sanitizers."""
