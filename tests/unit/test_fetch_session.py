"""Tests of fetch sessions: a model of the broker's session must contain exactly the wanted partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.broker.fetch_request import Position
from zkconsumer.broker.protocol import FetchResult
from zkconsumer.fetcher.fetch_session import FetchDelta, FetchSession
from zkconsumer.message import TopicPartition

Wanted = dict[TopicPartition, Position]

PARTITIONS = [TopicPartition("t", number) for number in range(5)]
WANTED = st.dictionaries(
    st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 3), st.sampled_from([16, 1024])), min_size=1
)


class Broker:
    """The session cache of a broker. Source: Kafka 4.3 org.apache.kafka.server.FetchManager.newContext."""

    def __init__(self) -> None:
        self.number = 0
        self.epoch = 0
        self.partitions: Wanted = {}

    def process(self, delta: FetchDelta, *, creates: bool = True) -> FetchResult:
        """Apply a request; return the response without partitions."""
        if delta.epoch == -1:
            self.partitions = dict(delta.positions)
            return FetchResult(0, 0, [])
        if delta.epoch == 0:
            self.partitions = dict(delta.positions)
            if not creates:
                return FetchResult(0, 0, [])
            self.number, self.epoch = self.number + 1, 1
        else:
            assert (delta.session_id, delta.epoch) == (self.number, self.epoch)
            self.partitions.update(delta.positions)
            for partition in delta.forgotten:
                del self.partitions[partition]
            self.epoch += 1
        return FetchResult(0, 0, [], self.number)


@given(st.lists(st.tuples(WANTED, st.sampled_from(["kept", "kept", "refused", "lost"])), max_size=12))
def test_broker_knows_exactly_wanted_partitions(steps: list[tuple[Wanted, str]]) -> None:
    session, broker = FetchSession(is_requested=True), Broker()
    for wanted, outcome in steps:
        delta = session.delta(wanted)
        result = broker.process(delta, creates=outcome != "refused")
        assert broker.partitions == wanted
        session.update(wanted, result)
        if outcome == "lost":  # the response did not arrive, or the broker was restarted
            session.reset()


def test_unchanged_partitions_are_not_sent_again() -> None:
    session, broker = FetchSession(is_requested=True), Broker()
    wanted: Wanted = dict.fromkeys(PARTITIONS, (5, 16))
    session.update(wanted, broker.process(session.delta(wanted)))
    assert not session.delta(wanted).positions
    moved = wanted | {PARTITIONS[1]: (6, 16)}
    del moved[PARTITIONS[0]]
    delta = session.delta(moved)
    assert delta.positions == {PARTITIONS[1]: (6, 16)}
    assert delta.forgotten == {PARTITIONS[0]}
    assert not delta.is_full


def test_epoch_continues_with_one_after_highest() -> None:
    session = FetchSession(is_requested=True)
    session.update({}, FetchResult(0, 0, [], 7))
    session._epoch = (1 << 31) - 1
    session.update({}, FetchResult(0, 0, [], 7))
    assert session.delta({}).epoch == 1


def test_short_fetchers_request_no_session() -> None:
    session = FetchSession(is_requested=False)
    wanted: Wanted = {PARTITIONS[0]: (5, 16)}
    for _ in range(2):
        delta = session.delta(wanted)
        assert (delta.session_id, delta.epoch, delta.positions, delta.is_full) == (0, -1, wanted, True)
        session.update(wanted, FetchResult(0, 0, []))
