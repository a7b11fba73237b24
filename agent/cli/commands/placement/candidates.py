"""``agent candidates``: in which ways Placement could place a guest."""

from collections.abc import Mapping
from dataclasses import asdict

from oslo_config import cfg

from agent.cli.commands.placement.holdings_lines import holdings_lines
from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.errors import PlacementTooOld
from agent.model.names import ProviderUuid, number_of
from agent.placement.allocations.candidates import Candidates, candidates
from agent.placement.allocations.query_text import parse_query
from agent.placement.client import CANDIDATES, PlacementClient


def show_candidates(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show what is answered; that nothing fits is an answer too.

    :raises BadRequest, CandidatesFailed: the query makes no sense.
    """
    query = parse_query(options.arguments["query"])
    with placement_work(conf, options, "candidates", writes=False) as work:
        if not work.capabilities.offers(CANDIDATES):
            raise PlacementTooOld(f"candidates need placement {CANDIDATES}, server offers {work.capabilities.max_version}", "upgrade Placement")
        found = candidates(work.client, query)
        names = _names(work.client, found)
        lines = [number_of(len(found.requests), "candidate") if found.requests else "no candidates: nothing fits"]
        for place, one in enumerate(found.requests, 1):
            lines += [f"candidate {place}", *holdings_lines(one.resources, names)]
        result = {
            "version": found.version,
            "providers": names,
            "allocation_requests": [one.body for one in found.requests],
            "provider_summaries": {uuid: {**asdict(one), "traits": sorted(one.traits)} for uuid, one in found.summaries.items()},
        }
        return finish(work, options, "candidates", result, lines)


def _names(client: PlacementClient, found: Candidates) -> Mapping[ProviderUuid, str]:
    """The names of all providers that are shown: one request a tree."""
    roots = sorted({one.root_uuid for one in found.summaries.values()})
    return {row.uuid: row.name for rows in client.exchange.each(client.tree, roots) for row in rows}
