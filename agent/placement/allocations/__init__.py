"""Operations on allocations: functions that take a client and return a typed result.

Input is checked before any request. Besides the errors that each function names, all of them raise
:class:`~agent.errors.PlacementRefused` and :class:`~agent.errors.PlacementUnreachable` as the
client does.
"""
