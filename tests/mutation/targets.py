"""Which modules are mutated, and the unit tests that should notice it."""

from __future__ import annotations

#: Package or module to the share of the mutants that are drawn from it, in percent.
SHARES = {
    "zookeeper/": 15,
    "rebalance/": 20,
    "topic_filter.py": 5,
    "fetcher/queues.py": 10,
    "spark/planning/": 20,
    "topology/": 30,
}

#: Module to the names of its tests, the fastest first. They need no servers. Other modules are covered by tests with
#: servers only, which would take minutes for each mutant.
TESTS = {
    "zookeeper/connection_diagnosis.py": ["addresses"],
    "zookeeper/connection.py": ["zookeeper_connection"],
    "zookeeper/kazoo_client.py": ["zookeeper_connection", "kazoo_client"],
    "zookeeper/lease.py": ["lease"],
    "zookeeper/registry.py": ["registry"],
    "offsets/metadata.py": ["markers"],
    "rebalance/assignors.py": ["assignors"],
    "rebalance/broker_requests.py": ["broker_requests", "committer"],
    "rebalance/callbacks.py": ["callbacks"],
    "rebalance/commit_requests.py": ["commit_requests", "committer", "member"],
    "rebalance/claim_history.py": ["claim_history"],
    "rebalance/committer.py": ["committer", "late_commits"],
    "rebalance/offset_storage.py": ["late_commits", "committer"],
    "rebalance/mailbox.py": ["mailbox", "broker_requests"],
    "rebalance/first_rebalance.py": ["first_rebalance", "attempts", "member_thread"],
    "rebalance/futures.py": ["callbacks", "committer", "mailbox"],
    "rebalance/member_thread.py": ["member_thread"],
    "rebalance/membership.py": ["membership"],
    "rebalance/owned_partitions.py": ["owned_partitions"],
    "rebalance/session_watch.py": ["session_watch", "broker_requests", "callbacks"],
    "topic_filter.py": ["topic_filter"],
    "fetcher/queues.py": ["queues", "manager", "stream"],
    "spark/planning/batch_limiter.py": ["batch_limiter"],
    "spark/planning/alignment.py": ["alignment"],
    "spark/planning/partition_state.py": ["partition_record", "partition_tracker"],
    "spark/planning/partition_tracker.py": ["partition_tracker", "planner"],
    "spark/planning/query_member.py": ["restore", "early_join", "planner"],
    "spark/planning/skipped_records.py": ["skipped_records"],
    "spark/planning/splitting.py": ["spark_offset"],
    "spark/planning/topic_ids.py": ["topic_changes"],
    "spark/planning/topic_states.py": ["topic_states", "topic_changes"],
    "topology/task/task.py": [
        "topology_task",
        "topology_failures",
        "topology_snapshots",
        "topology_caches",
        "topology_driver",
    ],
    "topology/task/task_context.py": [
        "topology_task",
        "topology_stores",
        "topology_failures",
        "topology_snapshots",
        "topology_caches",
    ],
    "topology/task/partition_group.py": [
        "topology_task",
        "topology_failures",
        "topology_commits",
        "topology_snapshots",
    ],
    "topology/task/queues.py": ["topology_task", "topology_failures", "topology_commits", "topology_snapshots"],
    "topology/task/punctuation.py": ["topology_task", "topology_failures", "topology_snapshots", "topology_driver"],
    "topology/task/snapshot.py": ["topology_snapshots", "topology_caches"],
    "topology/resolved.py": ["topology_builder", "topology_internal_topics", "topology_task", "topology_driver"],
    "topology/subtopology.py": [
        "topology_builder",
        "topology_internal_topics",
        "topology_task",
        "topology_driver",
        "topology_snapshots",
    ],
    "topology/task/task_runtime.py": ["topology_task", "topology_failures", "topology_commits", "topology_snapshots"],
    "topology/loop/loop_py.py": ["topology_loop", "topology_compiled_caches"],
    "topology/stores/pages.py": ["topology_pages", "topology_stores", "topology_compiled_maps"],
    "topology/stores/page_format.py": ["topology_pages", "topology_files"],
}
