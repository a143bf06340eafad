"""What happened: every ticket, every attempt, their clocks, and reports over them. Observes; never decides.

Read in this order: ``rows`` and ``report`` (pure: what is written down), ``ledger`` (in memory, while it happens),
``tables`` and ``disk`` (the same in the knowledge base's file, off the hot path).
"""
