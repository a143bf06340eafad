"""Can an engine answer at all: one question for everybody who asks, in every process of a store.

Read in this order: ``rules`` (pure: may a probe be sent, and what is known without one), ``work`` and ``watched`` (what
one process knows), ``call`` (one probe), ``broker`` (who asks, and who shares the answer), then ``tables`` and
``sharing`` (the same between processes, through the knowledge base's file).
"""
