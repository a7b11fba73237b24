"""``agent candidates``: in which ways Placement could place a guest."""

from dataclasses import asdict

from oslo_config import cfg

from agent.cli.commands.placement.holdings_lines import holdings_lines
from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.errors import PlacementTooOld
from agent.placement.allocations.candidates import candidates
from agent.placement.allocations.query_text import parse_query
from agent.placement.client import CANDIDATES


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show what is answered; that nothing fits is an answer too.

    :raises BadRequest, CandidatesFailed: the query makes no sense.
    """
    query = parse_query(options.arguments["query"])
    with placement_work(conf, options, writes=False) as work:
        if not work.knowledge.offers(CANDIDATES):
            raise PlacementTooOld(f"candidates need placement {CANDIDATES}, server offers {work.knowledge.max_version}", "upgrade Placement")
        found = candidates(work.client, query)
        lines = [f"{len(found.requests)} candidates" if found.requests else "no candidates: nothing fits"]
        for place, one in enumerate(found.requests, 1):
            lines += [f"candidate {place}", *holdings_lines(one.resources, {})]
        result = {
            "version": found.version,
            "allocation_requests": [one.body for one in found.requests],
            "provider_summaries": {uuid: {**asdict(one), "traits": sorted(one.traits)} for uuid, one in found.summaries.items()},
        }
        return finish(work, options, "candidates", result, lines)
