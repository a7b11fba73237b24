"""Errors as reports show them."""

from agent.errors import AgentError, ConfigErrors
from agent.model.report import Problem


def problems_of(error: AgentError) -> tuple[Problem, ...]:
    """Each error on its own, also where one exception carries many."""
    parts = error.errors if isinstance(error, ConfigErrors) else (error,)
    return tuple(Problem(part.code, part.message, part.remedy, part.fatal) for part in parts)
