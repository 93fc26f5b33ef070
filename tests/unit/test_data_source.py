"""The data source class: what Spark calls when it creates a query."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.source import ZkConsumerDataSource

OPTIONS = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "t"}


def create_reader(source: ZkConsumerDataSource, kind: str) -> Any:
    return source.reader(StructType()) if kind == "batch" else source.streamReader(StructType())


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("settings", [{}, {"corrupt.record.policy": "quarantine"}, {"includeHeaders": "true"}])
def test_schema_of_user_is_rejected(settings: dict[str, str], kind: str) -> None:
    """Spark then does not call ``schema``."""
    with pytest.raises(ConfigurationError, match=r"^format\('zkconsumer'\) does not accept a schema; remove schema"):
        create_reader(ZkConsumerDataSource({**OPTIONS, **settings}), kind)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_source_without_schema_is_accepted(kind: str) -> None:
    source = ZkConsumerDataSource(OPTIONS)
    assert "key binary" in source.schema()
    create_reader(source, kind)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_table_with_columns_is_rejected(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="does not support tables"):
        create_reader(ZkConsumerDataSource({"owner": "me"}), kind)
