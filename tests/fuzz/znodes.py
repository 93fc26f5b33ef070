"""Fuzz the content of znodes: ``python -m tests.fuzz.znodes --seconds 30``.

Other members, brokers and other programs write registrations, owners, offsets, brokers and topics. Whatever they
contain, parsing, matching and assigning must return a valid result or raise an error of this package; see ``runner``.
"""

from __future__ import annotations

import json
import random
import sys

from zkconsumer.rebalance.assignors import STRATEGIES, assign, group_threads_by_topic
from zkconsumer.rebalance.context import resolve_filter
from zkconsumer.rebalance.ownership import _describe_owner
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.registry import Registration
from zkconsumer.zookeeper.znodes import Znode

from .runner import MAX_MESSAGE, Fuzzer, Kind

PATH = "/consumers/g/ids/g_c"
TOPICS = ["orders", "t-1", "a.b_c", "orders-" * 30, "_", "0" * 249, "__consumer_offsets"]
PARTITIONS = {topic: [0, 1, 2] for topic in TOPICS}

NUMBERS = [
    "0",
    "1",
    "-1",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "1e999",
    "-1e999",
    "NaN",
    "1.5",
    "9" * 5000,
]
NUMBERS += ["1000", "1001", "1000000000", "true", "null", "-0", "1E3", '"1"', '"\u0662"', '"0x1"', '""', "[]", "{}"]
TEXTS = [
    "",
    "orders",
    "t-1",
    "*",
    ".*",
    "\x1b[2J",
    "a\nb",
    "\u202e",
    "\ud800",
    "\x00",
    "é",
    "²",
    "00",
    "-1",
    "x" * 300,
    "x" * 50_000,
]
ATOMS = [
    "a",
    ".",
    r"\w",
    r"\d",
    "[a-z]",
    "[^-]",
    "(a|aa)",
    "(?:x*)",
    "(?=a)",
    "(?<!b)",
    "(?>a+)",
    r"\b",
    "^",
    "$",
    r"\Qa\E",
    "-",
]
ATOMS += [
    r"\p{Alpha}",
    "[",
    "(",
    ")",
    "{",
    r"\1",
    "(?i)",
    "(?<n>a)",
    "&&",
    "|",
    "[a-z&&[^x]]",
    r"\x{61}",
    r"\u0061",
    "é",
]
QUANTIFIERS = ["", "", "", "*", "+", "?", "*?", "++", "{2}", "{1000}", "{999999999}", "{2}+", "{,3}", "{0}"]


def expression(rng: random.Random) -> str:
    """Return a text that resembles a regular expression, often with nested repetitions."""
    text = "".join(rng.choice(ATOMS) + rng.choice(QUANTIFIERS) for _ in range(rng.randrange(8)))
    for _ in range(rng.choice([0, 0, 1, 2, 3, 60, 6000]) if rng.random() < 0.5 else 1):
        text = f"({text}){rng.choice(QUANTIFIERS)}" if len(text) < 200_000 else text
    return text


def text(rng: random.Random) -> str:
    """Return the text of a JSON value: any value, with any nesting."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NUMBERS)
    if kind < 0.6:
        return json.dumps(rng.choice([*TEXTS, expression(rng)]))
    if kind < 0.75:
        return "[" + ",".join(text(rng) for _ in range(rng.randrange(3))) + "]"
    if kind < 0.98:
        return obj(rng, {json.dumps(rng.choice(TEXTS))[1:-1]: text(rng) for _ in range(rng.randrange(3))})
    return "[" * rng.choice([100, 100_000])


def obj(rng: random.Random, fields: dict[str, str]) -> str:
    """Return the text of a JSON object; sometimes a key is missing, is repeated or has another value."""
    items = [(key, text(rng) if rng.random() < 0.1 else value) for key, value in fields.items() if rng.random() > 0.03]
    if items and rng.random() < 0.05:
        items.append((rng.choice(items)[0], text(rng)))
    return "{" + ",".join(f'"{key}":{value}' for key, value in items) + "}"


def mutated(rng: random.Random, content: str) -> bytes:
    """Return the bytes of a text, sometimes cut or with other bytes in it."""
    data = bytearray(content.encode(errors="surrogatepass"))
    for _ in range(rng.choice([0, 0, 0, 0, 1, 3])):
        position = rng.randrange(len(data) + 1)
        data[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.03 else data)


def registration(rng: random.Random) -> bytes:
    """Return the content of a registration."""
    pattern = rng.choice(["static", "white_list", "black_list", "x"])
    keys = [
        expression(rng) if pattern.endswith("list") else rng.choice(TOPICS + TEXTS)
        for _ in range(rng.choice([0, 1, 1, 1, 2]))
    ]
    counts = {json.dumps(key)[1:-1]: rng.choice(["1", "2", "1000", rng.choice(NUMBERS)]) for key in keys}
    fields = {"version": "1", "subscription": obj(rng, counts), "pattern": json.dumps(pattern), "timestamp": '"1"'}
    return mutated(rng, obj(rng, fields))


def broker(rng: random.Random) -> bytes:
    """Return the content of a broker's znode."""
    host = json.dumps(rng.choice(["h", "::1", *TEXTS]))
    endpoints = ",".join(
        json.dumps(rng.choice(["PLAINTEXT://h:1", "SSL://h:2", "X://[::1]:3", f"X://{rng.choice(TEXTS)}", *TEXTS]))
        for _ in range(2)
    )
    listeners = obj(rng, {"X": '"PLAINTEXT"', "SSL": '"SSL"'})
    number = rng.choice(NUMBERS)
    fields = {"version": rng.choice(["4", number]), "host": host, "port": rng.choice(["9092", number])}
    return mutated(
        rng, obj(rng, {**fields, "endpoints": f"[{endpoints}]", "listener_security_protocol_map": listeners})
    )


def topic(rng: random.Random) -> bytes:
    """Return the content of a topic's znode."""
    odd = [*NUMBERS[:7], "01", "\u0662", " 1", "-1"]
    keys = [rng.choice(["0", "1", "2"] if rng.random() < 0.9 else odd) for _ in range(rng.randrange(4))]
    partitions = obj(rng, {json.dumps(key)[1:-1]: "[1,2]" for key in keys})
    topic_id = json.dumps(rng.choice(["vGcMCkhSTJ-GqCtFvCpNYg", *TEXTS]))
    return mutated(rng, obj(rng, {"version": "3", "partitions": partitions, "topic_id": topic_id}))


def check_registration(rng: random.Random, data: bytes) -> None:
    parsed = Registration.from_json(PATH, data)
    assert all(type(count) is int and 1 <= count <= registry.MAX_STREAMS for count in parsed.subscription.values())
    resolved = resolve_filter(PATH, parsed, TOPICS)
    members = {"g_c": resolved, "g_d": Registration(dict.fromkeys(TOPICS, 2))}
    threads = group_threads_by_topic(members, TOPICS)
    strategy, order = rng.choice([pair for pair in STRATEGIES if pair[1] != "0.8.2"])
    assigned = assign(strategy, order, PARTITIONS, threads)
    assert assigned.keys() == {(name, number) for name, numbers in PARTITIONS.items() for number in numbers}


def check_broker(_rng: random.Random, data: bytes) -> None:
    found = registry.parse_broker("1", data, "PLAINTEXT")
    assert found.host.isprintable()
    assert 0 < found.port < 65536


def check_topic(_rng: random.Random, data: bytes) -> None:
    numbers = registry.parse_partitions("t", data)
    assert all(type(number) is int and 0 <= number < 1 << 31 for number in numbers)
    assert numbers == sorted(set(numbers))
    registry.parse_topic_id("t", data)


def check_offset(_rng: random.Random, data: bytes) -> None:
    assert -1 <= registry.parse_offset("/consumers/g/offsets/t/0", data) < registry.OFFSET_MAX


def check_owner(_rng: random.Random, data: bytes) -> None:
    for session in (0, 1):
        described = _describe_owner(Znode(data, 0, session, 0, 0, 0.0))
        assert described.isprintable()
        assert len(described) < MAX_MESSAGE


def number(rng: random.Random) -> bytes:
    """Return the content of an offset znode."""
    return mutated(rng, rng.choice([*NUMBERS, *TEXTS, " 5\n", "+5", "\u0665"]).strip('"'))


def owner(rng: random.Random) -> bytes:
    """Return the content of an owner znode."""
    return mutated(rng, rng.choice(["g_c-0", "g_c", "-", *TEXTS]))


#: Each kind of znode.
KINDS: dict[str, Kind] = {
    "registration": (registration, check_registration),
    "broker": (broker, check_broker),
    "topic": (topic, check_topic),
    "offset": (number, check_offset),
    "owner": (owner, check_owner),
}


#: A filter may take 1 s of CPU time, and the compilation of the longest one less than the limit of an execution.
FUZZER = Fuzzer("znodes", KINDS, [6, 2, 2, 1, 1])
main = FUZZER.main


if __name__ == "__main__":
    sys.exit(main())
