"""Agents that are data: checked, published, given to those who drive them."""

from collections.abc import Callable, Mapping, Sequence

from lantern_journal.application.announcements import Hub
from lantern_journal.domain import agents
from lantern_journal.domain.agents import Fault, Publication, Published
from lantern_journal.ports import Store

Check = Callable[[bytes], Sequence[Fault]]
"""All that is wrong with a definition."""


class Agents:
    """Use cases of JournalAgentService.

    Args:
        store: Where they are kept.
        hub: Sees what was begun through to its end.
        checks: By program kind, what judges its definitions.
    """

    def __init__(self, store: Store, hub: Hub, checks: Mapping[str, Check]) -> None:
        self._store, self._hub, self._checks = store, hub, checks

    def check(self, program_kind: str, definition: bytes) -> Sequence[Fault]:
        """All that is wrong with a definition of that kind."""
        return self._checks[program_kind](definition)

    async def publish(self, publication: Publication) -> Published:
        """Makes a definition the current version of its agent; raises DEFINITION_INVALID where it is faulty."""
        faults = self.check(publication.program_kind, publication.definition)
        if faults:
            raise agents.invalid(faults)
        return await self._hub.see_through(self._store.publish_agent(publication))
