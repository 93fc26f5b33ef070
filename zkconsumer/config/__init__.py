"""Configuration: the properties of a consumer, how they are parsed, and the tables that document them.

``ConsumerConfig`` parses the properties that Kafka's old consumer has, and those of this package. Other packages use
the parsed values. ``types`` and ``declared`` also serve the options of the Spark source. The package runs in every
process, and starts no threads.
"""

from __future__ import annotations

from zkconsumer.config.consumer_config import ConsumerConfig

__all__ = ["ConsumerConfig"]
