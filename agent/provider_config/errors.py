"""What can be wrong with an entry only once there is a tree."""

from agent.errors import AgentError


class ProviderConfigConflict(AgentError):
    """An entry that does not fit the provider that it names. Nothing of it is applied; what an earlier configuration gave stays."""

    code = "provider-config.conflict"
