"""Requests to brokers: connections, metadata, leaders and offsets."""

import warnings

with warnings.catch_warnings():  # kafka-python loads its schemas with a function that Python has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
