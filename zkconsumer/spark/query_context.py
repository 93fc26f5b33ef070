"""What the driver and the user determine about a streaming query, before its planning process runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from zkconsumer.spark.keyed_server import ServerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """The context of a streaming query.

    Attributes:
        options: source options, as the user set them.
        schema: schema of the DataFrame.
        cores: default number of tasks per batch, until the driver listener reports the number of executor cores.
        driver: driver host name that executors can resolve, and the driver's bind address; None if unknown.
        link: address of the driver listener; None without a listener.
        has_an_end: whether the decoder can end the query.
    """

    options: Mapping[str, str]
    schema: StructType
    cores: int = 1
    driver: tuple[str, str | None] | None = None
    link: ServerAddress | None = None
    has_an_end: bool = False
