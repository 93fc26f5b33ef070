"""Tests of the authentication with a broker, with hand-made responses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationError


def security(mechanism: str = "PLAIN", username: str = "alice", password: str = "hidden-from-you") -> Security:
    return Security.from_config(
        ConsumerConfig.from_dict(
            {
                "group.id": "g",
                "zookeeper.connect": "h:2181",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": username,
                "sasl.password": password,
            }
        )
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("code", "text"),
    [
        (33, "does not support sasl.mechanism = {mechanism}; supported: GSSAPI, OAUTHBEARER"),
        (
            34,
            "rejected SASL authentication with .*ILLEGAL_?SASL_?STATE.* \\(34\\); check that the port is a SASL_PLAIN",
        ),
        (58, "{mechanism} authentication of user 'alice' with broker b failed: no; check sasl.username and"),
    ],
)
def test_rejected_login_is_authentication_error(mechanism: str, code: int, text: str) -> None:
    def respond(request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            code_of_handshake = code if code != 58 else 0
            mechanisms = ["GSSAPI", "OAUTHBEARER"]
            return SaslHandshakeResponse(version=1, error_code=code_of_handshake, mechanisms=mechanisms)
        return SaslAuthenticateResponse(version=0, error_code=code, error_message="no", auth_bytes=b"")

    with pytest.raises(AuthenticationError, match=f"(?i){text.format(mechanism=mechanism)}"):
        security(mechanism).authenticate(respond, "b")


def test_broker_that_does_not_know_password_is_rejected() -> None:
    """Another server at the address of a broker can complete the handshake, but cannot sign it."""

    def respond(request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(version=1, error_code=0, mechanisms=["SCRAM-SHA-256"])
        nonce = re.search(r"n=alice,r=(.+)", request.auth_bytes.decode())
        answer = "v=d3Jvbmc=" if nonce is None else f"r={nonce[1]}more,s=c2FsdA==,i=4096"
        return SaslAuthenticateResponse(version=0, error_code=0, error_message=None, auth_bytes=answer.encode())

    with pytest.raises(AuthenticationError) as raised:
        security("SCRAM-SHA-256").authenticate(respond, "broker-1")

    assert str(raised.value) == (
        "broker broker-1 failed to authenticate itself with SCRAM-SHA-256: its server signature is invalid, so it does "
        "not know the password; check that bootstrap.servers or zookeeper.connect names the right cluster"
    )
