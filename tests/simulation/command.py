"""Command line of the simulation: runs schedules in processes of their own, and shortens those that fail."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import pickle
import random
import select
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from zkconsumer.broker import channel
from zkconsumer.broker.transfer import transfer_by_socket

from . import injection
from .clock import real_time
from .kernel import kernel
from .plan import Plan, generate
from .records import Records
from .world import World

#: Real seconds after which a schedule counts as failed.
_MAX_S = 60


class Outcome(NamedTuple):
    """What a schedule ended with.

    Attributes:
        error: description of the failure; empty if there was none.
        trace: what happened.
        delivered: number of delivered records.
    """

    error: str
    trace: list[str]
    delivered: int


class _Trace(logging.Handler):
    """Adds the log events of the members to the trace."""

    def __init__(self, records: Records) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        task = kernel().current
        self._records.note(f"{task and task.process} LOG {record.getMessage()}")


def run_here(plan: Plan) -> Outcome:
    """Run a schedule in this process."""
    random.seed(plan.seed)
    gc.disable()
    world = World(plan)
    logging.getLogger().addHandler(_Trace(world.records))
    logging.getLogger("zkconsumer").setLevel(logging.INFO)
    try:
        world.run(injection.apply, injection.repair)
    except BaseException as error:
        text = "".join(traceback.format_exception(error)[-12:])
        return Outcome(f"{type(error).__name__}: {error}\n{text}", world.records.trace, world.records.delivered)
    return Outcome("", world.records.trace, world.records.delivered)


def run(plan: Plan) -> Outcome:
    """Run a schedule in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        outcome = run_here(plan)
        with os.fdopen(writer, "wb") as file:
            pickle.dump(outcome, file)
        os._exit(0)
    os.close(writer)
    data = bytearray()
    deadline = real_time() + _MAX_S
    while select.select([reader], [], [], max(0.0, deadline - real_time()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    else:
        os.kill(child, 9)
    os.close(reader)
    os.waitpid(child, 0)
    return pickle.loads(data) if data else Outcome(f"the schedule did not end within {_MAX_S} s", [], 0)


def shrink(plan: Plan) -> Plan:
    """Remove actions and members from a failing plan while it still fails."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for part in ("actions", "members"):
            for number in range(len(getattr(plan, part)) - 1, -1, -1):
                rest = getattr(plan, part)[:number] + getattr(plan, part)[number + 1 :]
                if part == "members" and not rest:
                    continue
                shorter = replace(plan, **{part: rest})
                if run(shorter).error:
                    plan, is_shorter = shorter, True
    return plan


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="how long to run; until stopped by default")
    parser.add_argument("--count", type=int, default=None, help="maximum number of schedules; no limit by default")
    parser.add_argument("--first", type=int, default=None, help="first seed; a random one by default")
    parser.add_argument("--seed", type=int, default=None, help="run only the schedule of this seed, with its trace")
    options = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    setattr(channel, "transfer", transfer_by_socket)  # noqa: B010, simulated sockets have no file descriptors
    if options.seed is not None:
        outcome = run(generate(options.seed))
        print("\n".join(outcome.trace))
        print(outcome.error or f"no fault, {outcome.delivered} records delivered")
        return bool(outcome.error)
    seed = options.first if options.first is not None else int.from_bytes(os.getrandom(4))
    started, count, records = real_time(), 0, 0
    try:
        while (options.count is None or count < options.count) and (
            options.seconds is None or real_time() - started < options.seconds
        ):
            outcome = run(generate(seed))
            count, records = count + 1, records + outcome.delivered
            if outcome.error:
                plan = shrink(generate(seed))
                outcome = run(plan)
                print("\n".join(outcome.trace[-200:]))
                print(f"{plan}\nseed {seed}: {outcome.error}")
                return 1
            seed += 1
    except KeyboardInterrupt:
        pass
    took = real_time() - started
    print(f"{count} schedules in {took:.0f} s, {records} records delivered, no fault; the last seed was {seed - 1}")
    return 0


__all__ = ["main"]
