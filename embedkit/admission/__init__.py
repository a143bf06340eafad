"""The heart: who may use an engine, when, and what happens to the others when it times out.

Read in this order:

- ``waiting`` and ``room`` (what is known of a ticket, and does it fit), ``order`` (what an order must do),
  ``fair_share`` and ``fair_order`` (who is next). All of them pure.
- ``ticket`` (what its maker describes), ``passage`` (where it is: the table, and the one writer of all that is written
  down of it), ``circuit`` and ``notifier`` (one run's switch, and the one way to throw it).
- ``policy``, ``hold``, ``slot`` and ``attempts`` (the calls of one dispatched ticket), ``connecting``, ``resting``.
- ``slots`` (the loop that keeps the laws), ``lane`` (its door and its ends), then the two kinds of lane, which differ
  in what becomes of a call whose caller has left, and in nothing else. ``unqueued`` is the way without a lane.
"""
