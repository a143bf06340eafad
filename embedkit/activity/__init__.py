"""What happened: every ticket and attempt, their clocks, and reports over them. It observes and never decides.

Read in this order: ``rows`` and ``report`` (pure: what is recorded), ``ledger`` (in memory, while it happens), then
``tables`` and ``disk`` (the same in the knowledge base's file, off the hot path).
"""
