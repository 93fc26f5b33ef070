"""Readers of streaming queries: what Spark calls. Each reader implements one version of Spark's interface.

Spark creates a reader in two processes, and pickles one of them for the executors. In the planning process, the reader
forwards the calls to a ``PlanningProcess``. In tasks, Spark only calls ``read``.
"""
