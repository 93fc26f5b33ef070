"""Random calls of the compiled loop of tasks and of that in Python, whose results and errors must be equal."""

from __future__ import annotations

import copy
import gc
from typing import Any

from zkconsumer.errors import StreamsError

from .loop_columns import append_rows, convert_objects, read_columns, search_negative_timestamp
from .loop_graphs import process_rows
from .sides import Calls, Side
from .values import I64_MAX, ReplacedHeaders, random_headers, random_object, random_timestamp


class LoopCalls(Calls):
    """Makes the same random calls of two loops."""

    def run(self, count: int) -> None:
        kinds = (
            change_records,
            *[process_rows] * 2,
            append_rows,
            read_columns,
            search_negative_timestamp,
            convert_objects,
            run_finalizers,
        )
        for _ in range(count):
            self.rng.choice(kinds)(self)


def change_records(calls: Calls) -> None:
    """Create, copy, change and compare records."""
    rng = calls.rng
    arguments = random_object(rng), random_object(rng), random_timestamp(rng), random_headers(rng)
    other = random_object(rng)
    names = rng.choices(("key", "value", "timestamp", "headers", "absent"), k=4)
    actions = rng.choices(range(9), k=4)
    values = [rng.choice((random_object(rng), random_timestamp(rng), random_headers(rng))) for _ in range(4)]

    def call(side: Side) -> Any:
        record = side.module.Record(*arguments)
        steps = []
        for action, name, value in zip(actions, names, values, strict=True):

            def step(action: int = action, name: str = name, value: Any = value) -> Any:
                match action:
                    case 0:
                        return setattr(record, name, value)
                    case 1 if name != "absent":
                        return delattr(record, name)
                    case 2 if name in ("key", "value"):
                        return getattr(side.module.Record, name).__delete__(record)
                    case 3 | 4 if name != "absent":
                        return getattr(record, f"with_{name}")(value)
                    case 5:
                        return copy.copy(record)
                    case 6:
                        return record == side.module.Record(other, *arguments[1:])
                    case 7:
                        return record == copy.copy(record), record != copy.copy(record), record == 1
                    case 8:
                        record.headers = ReplacedHeaders(record, [("a", b"x")])
                        return record.with_key(other)
                return record.__reduce__()[1]

            steps.append(side.outcome(step))
        return [steps, side.outcome(lambda: repr(record)), record]

    calls.compare(call)


def run_finalizers(calls: Calls) -> None:
    """Let finalizers change the lists that the compiled loop reads; only memory errors are found."""
    module = calls.modules[0]
    calls.count += 1
    keys: list[Any] = [[number] for number in range(20)]
    values: list[Any] = [[number] for number in range(20)]
    output = module.OutputColumns()
    records: list[Any] = []

    class Finalized:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            keys[10:] = [[0] for _ in range(10)]
            output.take()
            for record in records:
                record.key = [1]
                record.headers = []

    def process(record: Any) -> None:
        records[:] = [record]
        record.headers = [("a", [b""])]
        Finalized()
        repr(record)
        record.with_value(Finalized())
        output.append("out", None, 1, b"k", b"v", (("a", b""),))
        output.rows()

    thresholds = gc.get_threshold()
    gc.set_threshold(calls.rng.choice((1, 3, 10)))
    try:
        state = module.RunState()
        module.run_rows(state, (keys, values, list(range(20)), None), 20, I64_MAX, [process])
    except StreamsError:
        pass
    finally:
        gc.set_threshold(*thresholds)
