"""Timestamps that stand for the two ends of a partition's log in ListOffsets requests.

Source: Kafka 1.1 ListOffsetRequest.
"""

#: The log start offset, and the log end offset: the offset of the next record.
EARLIEST, LATEST = -2, -1
