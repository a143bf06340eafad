"""The heart: who may use an engine, when, and what happens to the others when it times out.

Read in this order: ``ticket`` (a queued item that is a cancel scope), ``order`` and ``room`` (pure: who is next, and
does it fit), ``circuit`` and ``notifier`` (one run's switch, and the one way to throw it), ``lane`` (the loop that
keeps the laws), then the two kinds of lane, which differ in what settles a slot and in nothing else.
"""
