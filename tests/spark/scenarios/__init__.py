"""Random topology inputs, for which a query and an in-memory task must have equal outputs."""
