"""The checkpoint file that contains an application's tasks and declarations. It is checked on each restart."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.spark.streams.changes import AllowedChange, normalize
from zkconsumer.spark.streams.checkpoint_directory import FILE, CheckpointDirectory
from zkconsumer.spark.streams.plan import TaskNumber, list_tasks
from zkconsumer.topology.subtopology import Subtopology
from zkconsumer.topology.task.snapshot import hash_fingerprint

_FORMAT = 1


@dataclass(frozen=True)
class StoredApplication:
    """The application to which a checkpoint belongs.

    Attributes:
        application_id: the application id.
        partitions: number of Spark partitions; cannot be changed after the first start.
        tasks: the tasks in key order.
        declarations: ``Subtopology.fingerprint`` by sub-topology number.
        stores: name and declaration of each store by sub-topology number, in the order of the store numbers in the
            state; a removed store keeps its number.
        removed: declarations of removed sub-topologies by number.
        earlier: hashes of earlier declarations by sub-topology number; see ``snapshot.hash_fingerprint``.
        marked: number of tasks, in key order, for which the group must have a marked offset in Kafka; see ``group``.
    """

    application_id: str
    partitions: int
    tasks: tuple[TaskNumber, ...]
    declarations: Mapping[str, Any]
    stores: Mapping[str, list[list[str]]]
    removed: Mapping[str, Any]
    earlier: Mapping[str, Sequence[str]]
    marked: int = 0

    @classmethod
    def create(
        cls, application_id: str, subtopologies: Mapping[int, Subtopology], partitions: int
    ) -> StoredApplication:
        """Create the application data for a new checkpoint.

        Args:
            application_id: the application id.
            subtopologies: the sub-topologies by number.
            partitions: maximum number of Spark partitions.
        """
        tasks = list_tasks(subtopologies)
        return cls(
            application_id,
            max(1, min(partitions, len(tasks))),
            tuple(tasks),
            _declare(subtopologies),
            {str(number): _describe_stores(one) for number, one in subtopologies.items()},
            {},
            {},
        )

    @classmethod
    def from_json(cls, text: str, place: str) -> StoredApplication:
        """Parse the application file of a checkpoint.

        Raises:
            StreamsError: the file is malformed, or was written by a later release.
        """
        try:
            data = json.loads(text)
            if data["format"] != _FORMAT:
                raise StreamsError(f"{place} must have format {_FORMAT}, got {data['format']}; upgrade zkconsumer")
            tasks = tuple(TaskNumber(*task) for task in data["tasks"])
            return cls(
                data["application_id"],
                data["partitions"],
                tasks,
                data["subtopologies"],
                data["stores"],
                data["removed"],
                data["earlier"],
                data["marked"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StreamsError(f"{place} is malformed: {error!r}; restore the checkpoint") from error

    def to_json(self) -> str:
        """Return the content of the application file."""
        data = {
            "format": _FORMAT,
            "application_id": self.application_id,
            "partitions": self.partitions,
            "tasks": self.tasks,
            "subtopologies": self.declarations,
            "stores": self.stores,
            "removed": self.removed,
            "earlier": self.earlier,
            "marked": self.marked,
        }
        return json.dumps(data, indent=1, sort_keys=True)

    def continue_with(
        self,
        application_id: str,
        subtopologies: Mapping[int, Subtopology],
        place: str,
        allowed: Collection[AllowedChange] = (),
    ) -> StoredApplication:
        """Return this application with the current topology, and with tasks for added partitions.

        Args:
            application_id: the application id.
            subtopologies: the current sub-topologies by number.
            place: description of the checkpoint, used in messages.
            allowed: allowed topology changes.

        Raises:
            StreamsError: the checkpoint belongs to another application, or the topology change is not allowed.
        """
        self.check_owner(application_id, place)
        declarations = _declare(subtopologies)
        before, now = normalize(self.declarations, declarations, allowed)
        if before != now:
            raise StreamsError(
                f"{place} was written with a different topology; restore the previous topology, or allow the change "
                f"with StreamsApp(allow=...). Differences:\n{_compare(before, now)}"
            )
        self._check_added(declarations, place)
        tasks = list_tasks(subtopologies)
        for number, one in subtopologies.items():
            self._check_tasks(number, one, place)
        added = [task for task in tasks if task not in self.tasks]
        return StoredApplication(
            application_id,
            self.partitions,
            (*self.tasks, *added),
            declarations,
            {**self.stores, **{str(number): self._add_stores(number, one) for number, one in subtopologies.items()}},
            {
                number: one
                for number, one in {**self.removed, **self.declarations}.items()
                if number not in declarations
            },
            {**self.earlier, **self._find_earlier(declarations)},
            self.marked,
        )

    def check_owner(self, application_id: str, place: str) -> None:
        """Raise StreamsError if the checkpoint belongs to another application."""
        if application_id != self.application_id:
            raise StreamsError(
                f"{place} belongs to application {self.application_id!r}, but application_id is {application_id!r}; "
                "use another checkpoint"
            )

    def number_stores(self, subtopologies: Mapping[int, Subtopology]) -> dict[int, dict[str, int]]:
        """Return the store numbers in the state, by sub-topology number and store name."""
        return {
            number: {store[0]: self.stores[str(number)].index(store) for store in _describe_stores(one)}
            for number, one in subtopologies.items()
        }

    def _add_stores(self, number: int, subtopology: Subtopology) -> list[list[str]]:
        known = self.stores.get(str(number), [])
        return [*known, *(store for store in _describe_stores(subtopology) if store not in known)]

    def _check_added(self, declarations: Mapping[str, Any], place: str) -> None:
        """Check that a sub-topology that reuses the number of a removed sub-topology has the same declaration."""
        for number in declarations.keys() & self.removed.keys():
            if declarations[number] != self.removed[number]:
                raise StreamsError(
                    f"{place} contains the state of the removed sub-topology {number}, whose declaration differs from "
                    f"that of the current sub-topology {number}; restore the previous declaration, or use a new "
                    "checkpoint and a new application id"
                )

    def _find_earlier(self, declarations: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the hashes of earlier declarations, by number of the changed sub-topology."""
        changed = [
            number
            for number, one in declarations.items()
            if number in self.declarations and one != self.declarations[number]
        ]
        texts = {number: json.dumps(self.declarations[number], sort_keys=True) for number in changed}
        return {
            number: sorted({*self.earlier.get(number, ()), hash_fingerprint(text)}) for number, text in texts.items()
        }

    def _check_tasks(self, number: int, subtopology: Subtopology, place: str) -> None:
        before = sum(task.subtopology == number for task in self.tasks)
        now = subtopology.task_count
        if now < before:
            raise StreamsError(
                f"{place}: the partition count of sub-topology {number} decreased from {before} to {now}; use a new "
                "checkpoint and a new application id"
            )
        if now > before and subtopology.stores:
            raise StreamsError(
                f"{place}: the partition count of sub-topology {number} increased from {before} to {now}, and its "
                "stores contain keys that now belong to other partitions; use a new checkpoint and a new application id"
            )


def open_application(
    directory: CheckpointDirectory,
    application_id: str,
    subtopologies: Mapping[int, Subtopology],
    partitions: int,
    allowed: Collection[AllowedChange] = (),
) -> StoredApplication:
    """Return the application of a checkpoint, after writing changes to the application file.

    Args:
        directory: checkpoint directory.
        application_id: the application id.
        subtopologies: the current sub-topologies by number.
        partitions: maximum number of Spark partitions for a new application.
        allowed: allowed topology changes.

    Raises:
        StreamsError: the checkpoint belongs to another application or topology, or its directory cannot be used.
    """
    if not directory.is_used():  # a first start that failed does not bind the checkpoint to a topology
        application = StoredApplication.create(application_id, subtopologies, partitions)
        directory.write(application.to_json())
        return application
    text = directory.read()
    if text is None:
        raise StreamsError(
            f"{directory} contains batches, but no file {FILE}: it was written by another query; use a new checkpoint"
        )
    stored = StoredApplication.from_json(text, f"{directory}/{FILE}")
    application = stored.continue_with(application_id, subtopologies, str(directory), allowed)
    if application.to_json() != text:
        directory.write(application.to_json())
    return application


def check_deletable(directory: CheckpointDirectory, application_id: str) -> bool:
    """Check that a directory is the checkpoint of an application, and return whether it exists.

    Args:
        directory: checkpoint directory.
        application_id: the application id.

    Raises:
        StreamsError: the directory is not a checkpoint, belongs to another application, or cannot be used.
    """
    if not directory.exists():
        return False
    text = directory.read()
    if text is None:
        raise StreamsError(f"{directory.path} has no file {FILE}, so it is not the checkpoint of an application")
    stored = StoredApplication.from_json(text, f"{directory}/{FILE}")
    stored.check_owner(application_id, str(directory))
    return True


def _declare(subtopologies: Mapping[int, Subtopology]) -> dict[str, Any]:
    return {str(number): json.loads(one.fingerprint) for number, one in subtopologies.items()}


def _describe_stores(subtopology: Subtopology) -> list[list[str]]:
    """Return the name of each store, and its declaration without settings that do not affect the state."""
    declared = json.loads(subtopology.fingerprint)["stores"]
    return [
        [store["name"], json.dumps({"kind": store.get("kind"), "parameters": store.get("parameters")}, sort_keys=True)]
        for store in declared
    ]


def _compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (before, now))
    return "\n".join(unified_diff(old, new, "checkpoint", "topology", lineterm="", n=2))
