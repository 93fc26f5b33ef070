"""A member of a consumer group: registration, assignment, claims, releases and commits, without fetching.

It runs in the process of a consumer, and in Spark's planning process. Each member has one thread that registers and
rebalances, one for commits, one for lookups if the metadata comes from brokers, and one for each callback of the
application. Other packages use ``member_factory.create_member``, ``GroupMember``, ``PartitionHandler`` and ``Mailbox``;
``assignors``, ``context.resolve_filter`` and ``topic_filter`` are also used by tools. This package does not import
``fetcher``.
"""
