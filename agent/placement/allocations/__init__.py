"""Operations on allocations: each a function of a client and what it is about, with a typed result
and typed errors.

Whatever is wrong with the input is told before any request. Beside the errors that each function
names, all of them raise
:class:`~agent.errors.PlacementRefused` and :class:`~agent.errors.PlacementUnreachable` as the
client does.
"""
