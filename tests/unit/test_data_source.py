"""The data source class: what Spark calls in ``load()``."""

from __future__ import annotations

import pickle

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.source import ZkConsumerDataSource

OPTIONS = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "t"}


@pytest.mark.parametrize("settings", [{}, {"corrupt.record.policy": "quarantine"}, {"includeHeaders": "true"}])
def test_schema_of_user_is_rejected_by_load(settings: dict[str, str]) -> None:
    """Spark then pickles the source without having called ``schema``."""
    with pytest.raises(ConfigurationError, match=r"^format\('zkconsumer'\) does not accept a schema; remove schema"):
        CloudPickleSerializer().dumps(ZkConsumerDataSource({**OPTIONS, **settings}))


def test_source_is_pickled_with_its_options() -> None:
    source = ZkConsumerDataSource(OPTIONS)
    assert "key binary" in source.schema()
    again = pickle.loads(CloudPickleSerializer().dumps(source))
    assert dict(again.options) == OPTIONS
    assert pickle.loads(pickle.dumps(again)).streamReader(schema=StructType()).initialOffset() == INITIAL
