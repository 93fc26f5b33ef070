"""Simulation of consumer groups: real members on simulated threads, clocks, network, ZooKeeper servers and brokers."""
