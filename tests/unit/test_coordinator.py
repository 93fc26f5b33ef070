"""Tests of the client of the group coordinator with a broker on a socket."""

from __future__ import annotations

import pytest
from fake_broker import FakeBroker

from zkconsumer.errors import ClosedError
from zkconsumer.offsets.coordinator import GroupCoordinator


def test_closed_client_does_not_connect_again() -> None:
    with FakeBroker() as broker:
        client = GroupCoordinator("g", lambda: [broker.endpoint], "test", timeout=5)
        client.close()

        with pytest.raises(ClosedError):
            client.fetch_offsets(None)

        assert broker.connections == 0
