"""Interrupt a function where a signal handler can run, and can raise an exception."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any, Literal

from helpers.threads import in_thread


def raise_interrupt() -> None:
    """Do what Python's handler of SIGINT does."""
    raise KeyboardInterrupt


def interrupt_at(
    number: int,
    call: Callable[[], object],
    files: Collection[str],
    *,
    event: Literal["opcode", "line"],
    handle: Callable[[], object] = raise_interrupt,
) -> bool:
    """Call a function in a new thread, and run a signal handler before an instruction or a line.

    Among the instructions are those that end the handling of an exception; if one of them is interrupted, Python keeps
    that exception as the one that is handled by the thread.

    Args:
        number: number of the instruction or line, from 1, in the order of their execution.
        call: the function.
        files: paths of the source files in which instructions or lines are counted.
        event: what is counted.
        handle: the signal handler; by default, it raises KeyboardInterrupt.

    Returns:
        whether the function executed that many instructions or lines.
    """
    count = 0

    def trace(frame: FrameType, found: str, _argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = event == "opcode"
        if found == event:
            count += 1
            if count == number:
                handle()
        return trace

    def run() -> None:
        sys._getframe().f_trace_opcodes = event == "opcode"  # otherwise Python 3.12 traces no instructions
        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    in_thread(run).result()
    return count >= number
