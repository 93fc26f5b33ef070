"""A running task: its nodes, stores, queues, punctuations and snapshots. The entry point is ``task.StreamTask``."""
