"""``TopologyTestDriver``, which runs a topology in one process without brokers."""
