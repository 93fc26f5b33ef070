"""Host name resolution with a deadline, and TLS contexts, for connections to brokers and ZooKeeper.

It runs in every process. Each name resolution in progress uses a daemon thread.
"""
