"""A finding of ``doctor``, and the commands in its remedies."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass

from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import GroupPaths


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a group.

    Attributes:
        problem: what is wrong.
        where: the member, topic, partition or znode.
        remedy: what to do.
    """

    problem: str
    where: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Command lines that can be pasted into a shell; each refers to the group and the servers of ``options``."""

    options: argparse.Namespace

    def delete_group(self) -> str:
        """Delete the group."""
        return self._line("consumer-groups", "--delete", "--group", self.options.group)

    def delete_offset(self, partition: TopicPartition) -> str:
        """Delete the offset of one partition in ZooKeeper."""
        which = ("--group", self.options.group, "--topic", partition.topic, "--partition", str(partition.partition))
        return self._line("consumer-groups", "--delete", *which)

    def copy_offsets(self, to: str) -> str:
        """Copy the group's offsets to ``zookeeper`` or ``kafka`` from the other storage."""
        return self._line("migrate-offsets", "--group", self.options.group, "--to", to, "--allow-back", "--execute")

    def set_offset(self, partition: TopicPartition, offset: int) -> str:
        """Set the offset of one partition in ZooKeeper."""
        line = f"{GroupPaths(self.options.group).offset(partition)}:{offset}"
        command = self._line("import-offsets", "--input-file", "/dev/stdin", hosts="--zkconnect")
        return f"echo {shlex.quote(line)} | {command}"

    def _line(self, tool: str, *arguments: str, hosts: str = "--zookeeper") -> str:
        words = ["zkconsumer", tool, hosts, self.options.zookeeper, *arguments]
        for option in ("command_config", "bootstrap_server"):
            if (value := getattr(self.options, option)) is not None:
                words += [f"--{option.replace('_', '-')}", value]
        return shlex.join(words)
