"""Tests of the authentication with a broker, with hand-made responses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationError


def test_broker_that_does_not_know_password_is_rejected() -> None:
    """Another server at the address of a broker can complete the handshake, but cannot sign it."""
    config = ConsumerConfig.from_dict(
        {
            "group.id": "g",
            "zookeeper.connect": "h:2181",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "hidden-from-you",
        }
    )

    def respond(request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(version=1, error_code=0, mechanisms=["SCRAM-SHA-256"])
        nonce = re.search(r"n=alice,r=(.+)", request.auth_bytes.decode())
        answer = "v=d3Jvbmc=" if nonce is None else f"r={nonce[1]}more,s=c2FsdA==,i=4096"
        return SaslAuthenticateResponse(version=0, error_code=0, error_message=None, auth_bytes=answer.encode())

    with pytest.raises(AuthenticationError) as raised:
        Security.from_config(config).authenticate(respond, "broker-1")

    assert str(raised.value) == (
        "broker broker-1 failed to authenticate itself with SCRAM-SHA-256: its server signature is invalid, so it does "
        "not know the password; check that bootstrap.servers or zookeeper.connect names the right cluster"
    )
