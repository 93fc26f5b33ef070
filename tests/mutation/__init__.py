"""Mutation tests: ``python -m tests.mutation``."""
