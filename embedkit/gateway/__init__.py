"""The gateway: the lane's front door, for programs in any language that share an engine.

A request becomes a ticket and its body passes through as bytes. ``serving`` opens the doors; ``inbound`` is one
client's connection; ``door`` decides about one request with the help of the pure files (``paths``, ``asked``,
``wishes``, ``keyring``, ``catalogue``, ``refusals``, ``visitors``); ``relaying`` is the call that a slot makes.
"""
