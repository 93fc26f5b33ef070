"""Applications: programs that consume with members of this package, and restart after errors as a supervisor does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import Health, HealthState
from zkconsumer.message import TopicPartition

from .kernel import Process, kernel
from .plan import MemberKind, MemberPlan
from .records import Records
from .threads import start_thread

#: Seconds after which the supervisor starts a failed program again.
_RESTART_S = 2.0


class Application:
    """A process with a member.

    Attributes:
        process: the process.
        has_left: whether it has ended, as asked.
        is_leaving: whether it was asked to end.
        health: state that the health listener was last told of; None before there is a consumer.
    """

    def __init__(self, plan: MemberPlan, process: Process, properties: Mapping[str, str], records: Records) -> None:
        self.process = process
        self.has_left = False
        self._plan, self._records = plan, records
        self._config = ConsumerConfig.from_dict(dict(properties))
        self._consumer: Any = None
        self.is_leaving = False
        self.health: HealthState | None = None

    def start(self) -> None:
        """Start the process."""
        start_thread(self.process, "main", self._run)

    def leave(self) -> None:
        """Let the program end, as after ``SIGTERM``."""
        self.is_leaving = True
        if self._consumer is not None and not self.process.is_dead:
            start_thread(self.process, "signal", self._consumer.stop)

    def _run(self) -> None:
        while not self.is_leaving:
            try:
                self._consume()
            except ZkConsumerError as error:
                self._records.note(f"{self.process} failed: {error}")
                kernel().sleep(_RESTART_S)
        self.has_left = True

    def _consume(self) -> None:
        kind = self._plan.kind
        self._consumer = consumer = create_consumer(self._config)
        consumer.set_health_listener(self._on_health)
        self.health = HealthState.HEALTHY
        with consumer:
            stream = consumer.stream(self._plan.topics)
            if self.is_leaving:
                consumer.stop()
            if kind is MemberKind.TIMER:
                start_thread(self.process, "timer", lambda: self._commit_regularly(consumer))
            for number, message in enumerate(stream):
                partition = TopicPartition(message.topic, message.partition)
                self._records.deliver(self.process, partition, message.offset, (message.value or b"").decode())
                if kind is MemberKind.SLOW and not self._records.is_settling:
                    kernel().sleep(kernel().random.uniform(0.0, 1.5))
                elif kind is MemberKind.MANUAL and number % 7 == 6:
                    self._commit(consumer)

    def _on_health(self, health: Health) -> None:
        self.health = health.state

    def _commit_regularly(self, consumer: Any) -> None:
        while self._consumer is consumer and not self.is_leaving:
            kernel().sleep(0.3)
            self._commit(consumer)

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit_offsets()
        except ZkConsumerError as error:
            self._records.note(f"{self.process} could not commit: {error}")


__all__ = ["Application"]
