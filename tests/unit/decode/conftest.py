"""The decoder that a test uses."""

from __future__ import annotations

from typing import Any

import pytest

from zkconsumer.fetcher import _decode, decode, decode_py

TWINS: dict[str, Any] = {"c": _decode, "python": decode_py}


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decode with this decoder; the test runs once with each of the two."""
    monkeypatch.setattr(decode, "native", TWINS[request.param])
    return TWINS[request.param]
