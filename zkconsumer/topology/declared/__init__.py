"""Declarations of topologies: nodes, their grouping into sub-topologies, source topics and descriptions."""
