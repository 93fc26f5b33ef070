"""What connections to brokers and to ZooKeeper have in common: name resolution with a deadline, and TLS contexts.

It runs in every process. Each name resolution in progress has a daemon thread.
"""
