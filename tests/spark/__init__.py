"""Real queries of a real Spark on real brokers: what they deliver, what they store, what they survive."""
