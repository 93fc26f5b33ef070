"""Programs that tests start as processes of their own: drivers of queries, contexts and applications."""
