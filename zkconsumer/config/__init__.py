"""Configuration: declaration, parsing and documentation of the consumer properties.

``ConsumerConfig`` parses the properties of Kafka's old consumer and the properties added by zkconsumer. Other packages
use the parsed values. ``types`` and ``declared`` are also used for the options of the Spark source. The package is used
in all processes, and starts no threads.
"""

from __future__ import annotations

from zkconsumer.config.consumer_config import ConsumerConfig

__all__ = ["ConsumerConfig"]
