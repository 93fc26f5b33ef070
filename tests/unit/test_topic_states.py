"""Tests of the states of topics: the table of transitions."""

from __future__ import annotations

import re

import pytest

from zkconsumer.spark.planning import topic_states
from zkconsumer.spark.planning.topic_states import TRANSITIONS, TopicEvent, TopicRecord, TopicState


def documented() -> dict[TopicEvent, dict[TopicState, TopicState]]:
    """Return the table in the docstring of the module."""
    lines = [line for line in (topic_states.__doc__ or "").splitlines() if re.fullmatch(r"(\S+ {2,})+\S+", line)]
    header, *rows = [line.split() for line in lines if not line.startswith("=")]
    assert header[0] == "event"
    states = [TopicState(name) for name in header[1:]]
    return {
        TopicEvent(event): {state: TopicState(cell) for state, cell in zip(states, cells, strict=True) if cell != "-"}
        for event, *cells in rows
    }


def test_documented_transitions_are_those_of_the_code() -> None:
    assert documented() == TRANSITIONS
    assert TRANSITIONS.keys() == set(TopicEvent)


@pytest.mark.parametrize("state", TopicState)
@pytest.mark.parametrize("event", TopicEvent)
def test_record_follows_the_table_of_transitions(event: TopicEvent, state: TopicState) -> None:
    record = TopicRecord(state)
    following = TRANSITIONS[event].get(state)
    if following is None:
        with pytest.raises(RuntimeError, match=f"event '{event.value}' is not valid .* in state '{state.value}'"):
            record.apply(event)
        following = state
    else:
        record.apply(event)
    assert record.state is following
