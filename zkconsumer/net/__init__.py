"""Host name resolution with a deadline, TLS contexts, and the connection threads of servers.

It runs in every process. Each name resolution in progress uses a daemon thread.
"""
