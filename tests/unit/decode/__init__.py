"""Tests of the compiled decoder and the one in Python, with all formats and codecs, and damaged or truncated data.

The results are compared with what ``batches`` and Kafka's own classes wrote, with kafka-python's decoder, and with each
other.
"""
