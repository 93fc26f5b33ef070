"""A consumer group member: registration, assignment, partition ownership and offset commits, but not fetching.

This package runs in the consumer's process, and in Spark's planning process. Each member has one thread for
registration and rebalances, one for commits, one for metadata lookups if these are sent to brokers, and one for each
running rebalance callback. Other packages use ``member_factory.create_member``, ``GroupMember``, ``PartitionHandler``
and ``Mailbox``; tools also use ``assignors`` and ``context.resolve_filter``. This package does not import ``fetcher``.
"""
