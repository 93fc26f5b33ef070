"""Tests of the authentication with a broker, with hand-made responses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import struct
from contextlib import closing
from typing import Any

import pytest
from helpers.fake_broker import API_VERSIONS, PARTITION, FakeBroker
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, UnsupportedBrokerError

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def no_tokens(_token: bytes) -> bytes:
    raise AssertionError("only brokers before 1.0 receive tokens without requests")


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
        (
            33,
            "not support sasl.mechanism = {mechanism}, only GSSAPI, X; enable PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
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
            mechanisms = ["GSSAPI", "X"]
            return SaslHandshakeResponse(version=1, error_code=code_of_handshake, mechanisms=mechanisms)
        return SaslAuthenticateResponse(version=0, error_code=code, error_message="no", auth_bytes=b"")

    with pytest.raises(AuthenticationError, match=f"(?i){text.format(mechanism=mechanism)}"):
        security(mechanism).authenticate(respond, no_tokens, "b")


def test_broker_that_does_not_know_password_is_rejected() -> None:
    """Another server at the address of a broker can complete the handshake, but cannot sign it."""

    def respond(request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(version=1, error_code=0, mechanisms=["SCRAM-SHA-256"])
        nonce = re.search(r"n=alice,r=(.+)", request.auth_bytes.decode())
        answer = "v=d3Jvbmc=" if nonce is None else f"r={nonce[1]}more,s=c2FsdA==,i=4096"
        return SaslAuthenticateResponse(version=0, error_code=0, error_message=None, auth_bytes=answer.encode())

    with pytest.raises(AuthenticationError) as raised:
        security("SCRAM-SHA-256").authenticate(respond, no_tokens, "broker-1")

    assert str(raised.value) == (
        "broker broker-1 failed to authenticate itself with SCRAM-SHA-256: its server signature is invalid, so it does "
        "not know the password; check that bootstrap.servers or zookeeper.connect names the right cluster"
    )


class SaslServer:
    """The broker's side of PLAIN and SCRAM, with one user. Source: RFC 4616, RFC 5802."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        self._mechanism = mechanism
        self._algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}.get(mechanism, "")
        self._username, self._password = username, password
        self._messages: list[str] = []
        self.is_done = False

    def respond(self, request: Any) -> Any:
        """Respond to a request of the client."""
        if isinstance(request, SaslHandshakeRequest):
            version = 1 if request.API_VERSION is None else request.API_VERSION
            return SaslHandshakeResponse(version=version, error_code=0, mechanisms=[self._mechanism])
        token = request.auth_bytes.decode()
        answer = self.answer(token)
        code = 58 if answer is None else 0
        return SaslAuthenticateResponse(
            version=0, error_code=code, error_message="rejected", auth_bytes=(answer or "").encode()
        )

    def answer(self, token: str) -> str | None:
        """Return the answer to a token of the client; None if it is rejected."""
        self.is_done = self._mechanism == "PLAIN" or bool(self._messages)
        return self._plain(token) if self._mechanism == "PLAIN" else self._scram(token)

    def _plain(self, token: str) -> str | None:
        authorization, user, password = token.split("\0")
        return "" if (user, password) == (self._username, self._password) and authorization in ("", user) else None

    def _scram(self, token: str) -> str | None:
        if not self._messages:
            match = re.fullmatch(r"n,,n=((?:[^=,]|=2C|=3D)+),r=([!-+\--~]+)", token)
            if match is None or match[1].replace("=2C", ",").replace("=3D", "=") != self._username:
                return None
            first = f"r={match[2]}-of-server,s={base64.b64encode(b'salt').decode()},i=4096"
            self._messages = [token[3:], first]
            return first
        bare, _, proof = token.rpartition(",p=")
        signed = ",".join([*self._messages, bare]).encode()
        salted = hashlib.pbkdf2_hmac(self._algorithm, self._password.encode(), b"salt", 4096)
        client, server = (hmac.digest(salted, name, self._algorithm) for name in (b"Client Key", b"Server Key"))
        stored = hashlib.new(self._algorithm, client).digest()
        expected = bytes(a ^ b for a, b in zip(client, hmac.digest(stored, signed, self._algorithm), strict=True))
        if base64.b64decode(proof) != expected:
            return None
        return "v=" + base64.b64encode(hmac.digest(server, signed, self._algorithm)).decode()


NAMES = st.text(
    st.sampled_from(',=2C3D%\u00e9\u212b\u00aa\u2168 "\\\\')
    | st.characters(exclude_characters="\0", exclude_categories=["Cs"])
)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(username=NAMES.filter(bool), password=NAMES.filter(bool))
@example(username="al,ice=x", password="p,a=s")
@example(username="=2C", password="\u00aa\u2168")  # SASLprep would change the password
@settings(max_examples=40, deadline=None)
def test_any_user_name_and_password_are_accepted(mechanism: str, username: str, password: str) -> None:
    Security("SASL_PLAINTEXT", mechanism=mechanism, username=username, password=password).authenticate(
        SaslServer(mechanism, username, password).respond, no_tokens, "b"
    )
    with pytest.raises(AuthenticationError, match="authentication of user"):
        Security("SASL_PLAINTEXT", mechanism=mechanism, username=username, password=password + "x").authenticate(
            SaslServer(mechanism, username, password).respond, no_tokens, "b"
        )


class SaslBroker(FakeBroker):
    """A broker that requires SASL.

    Args:
        handshake_version: newest version of SaslHandshake requests; None for a broker without them.
    """

    def __init__(self, mechanism: str, handshake_version: int | None) -> None:
        self._mechanism, self._version = mechanism, handshake_version
        self._servers: dict[socket.socket, SaslServer] = {}
        super().__init__()
        if handshake_version is not None:
            self.newest[SASL_HANDSHAKE] = handshake_version
        if handshake_version == 1:
            self.newest[SASL_AUTHENTICATE] = 0

    def _response(self, frame: bytes, connection: socket.socket) -> bytes | None:
        server = self._servers.get(connection)
        if server is not None and self._version == 0 and not server.is_done:
            answer = server.answer(frame[4:].decode())
            return None if answer is None else struct.pack(">i", len(answer)) + answer.encode()
        key, version, correlation = struct.unpack_from(">hhi", frame, 4)
        if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return super()._response(frame, connection) if key == API_VERSIONS or server else None
        if key == SASL_HANDSHAKE:
            if version != self._version:
                return None
            server = self._servers[connection] = SaslServer(self._mechanism, "alice", "secret")
            request: Any = SaslHandshakeRequest.decode(frame, version=version, header=True, framed=True)
        else:
            request = SaslAuthenticateRequest.decode(frame, version=version, header=True, framed=True)
        assert server is not None
        body = server.respond(request).encode()
        return struct.pack(">ii", len(body) + 4, correlation) + bytes(body)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1])
def test_authentication_uses_requests_that_broker_supports(version: int, mechanism: str) -> None:
    with SaslBroker(mechanism, version) as broker:
        for password, expected in ("secret", None), ("wrong", (BrokerUnavailableError, AuthenticationError)[version]):
            connecting = Connecting("test", 5, security(mechanism, password=password))
            with closing(LeaderLookup(connecting)) as lookup:
                if expected is None:
                    assert lookup.leaders([broker.endpoint], [PARTITION])
                    continue
                with pytest.raises(expected, match=r"authentication of user 'alice'.*check sasl\.username") as raised:
                    lookup.leaders([broker.endpoint], [PARTITION])
                assert type(raised.value) is expected


def test_broker_without_sasl_requests_is_unsupported() -> None:
    with (
        SaslBroker("PLAIN", None) as broker,
        closing(LeaderLookup(Connecting("test", 5, security()))) as lookup,
        pytest.raises(UnsupportedBrokerError, match="SaslHandshake"),
    ):
        lookup.leaders([broker.endpoint], [PARTITION])


@pytest.mark.parametrize("size", [-1, 1 << 30])
def test_token_with_invalid_size_is_rejected(size: int) -> None:
    broker = SaslBroker("PLAIN", 0)
    answer = broker._respond

    def respond(frame: bytes, connection: socket.socket) -> bytes | None:
        return struct.pack(">i", size) if connection in broker._servers else answer(frame, connection)

    broker._respond = respond
    with (
        broker,
        closing(LeaderLookup(Connecting("test", 5, security(password="secret")))) as lookup,
        pytest.raises(BrokerUnavailableError, match=f"invalid SASL token size {size}"),
    ):
        lookup.leaders([broker.endpoint], [PARTITION])
