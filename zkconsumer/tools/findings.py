"""Findings of ``doctor``, and the commands in their remedies."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zkconsumer.health import Health, HealthReason, HealthState, merge_reasons
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import GroupPaths

#: Health state by reason code; all other codes mean that the group is stalled.
_STATES = {"rebalancing": HealthState.REBALANCING, "no_members": HealthState.FAILED}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a group.

    Attributes:
        problem: description of the problem.
        where: affected member, topic, partition or znode.
        remedy: action that solves the problem.
        code: ``HealthReason`` code if the problem prevents progress, otherwise "".
        partitions: affected partitions; empty if all are affected.
        since: time at which the problem started, in seconds since the epoch; None if it is unknown.
    """

    problem: str
    where: str
    remedy: str
    code: str = ""
    partitions: tuple[TopicPartition, ...] = ()
    since: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object, without the fields that are used only to assess the health."""
        return {"problem": self.problem, "where": self.where, "remedy": self.remedy}


def assess_health(findings: Iterable[Finding]) -> Health:
    """Return the health of a group; for a problem with an unknown start time, the current time is used."""
    now = time.time()
    return Health.of(
        merge_reasons(
            HealthReason(
                _STATES.get(finding.code, HealthState.STALLED),
                finding.code,
                now if finding.since is None else finding.since,
                f"{finding.where}: {finding.problem}",
                frozenset(finding.partitions),
            )
            for finding in findings
            if finding.code
        )
    )


@dataclass(frozen=True, slots=True)
class Commands:
    """Builds shell commands for the group and the servers in ``options``."""

    options: argparse.Namespace

    def delete_group(self) -> str:
        """Return the command that deletes the group."""
        return self._line("consumer-groups", "--delete", "--group", self.options.group)

    def delete_offset(self, partition: TopicPartition) -> str:
        """Return the command that deletes the offset of one partition in ZooKeeper."""
        which = ("--group", self.options.group, "--topic", partition.topic, "--partition", str(partition.partition))
        return self._line("consumer-groups", "--delete", *which)

    def copy_offsets(self, to: str) -> str:
        """Return the command that copies the group's offsets to ``zookeeper`` or ``kafka`` from the other storage."""
        return self._line("migrate-offsets", "--group", self.options.group, "--to", to, "--allow-back", "--execute")

    def set_offset(self, partition: TopicPartition, offset: int) -> str:
        """Return the command that sets the offset of one partition in ZooKeeper."""
        line = f"{GroupPaths(self.options.group).offset(partition)}:{offset}"
        command = self._line("import-offsets", "--input-file", "/dev/stdin", hosts="--zkconnect")
        return f"echo {shlex.quote(line)} | {command}"

    def _line(self, tool: str, *arguments: str, hosts: str = "--zookeeper") -> str:
        words = ["zkconsumer", tool, hosts, self.options.zookeeper, *arguments]
        for option in ("command_config", "bootstrap_server"):
            if (value := getattr(self.options, option)) is not None:
                words += [f"--{option.replace('_', '-')}", value]
        return shlex.join(words)
