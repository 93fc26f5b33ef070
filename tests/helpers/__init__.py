"""Helpers that several test directories share: clients, servers, clocks, and waiting with deadlines."""
