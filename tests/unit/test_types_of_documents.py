"""The types of documents, when several threads read their first ones at once."""

import subprocess
import sys
from textwrap import dedent

FIRST_READERS = dedent(
    """
    import os, sys, threading
    from agent.api.body import read_json
    from agent.api.operations import OPERATIONS
    from agent.api.requests import NewClaim
    from agent.placement import answers

    A = "a2c9a5f8-3a52-4b1c-8f0e-6a8b54cf1d3b"
    CLAIM = (
        '{"id": "%s", "node": "%s", "instance": {"uuid": "%s", "project_id": "p", "user_id": "u"},'
        ' "flavor": {"id": "f", "name": "f", "vcpus": 1, "memory_mb": 1, "root_gb": 0,'
        ' "ephemeral_gb": 0, "swap_mb": 0, "extra_specs": {}}, "allocations": {}}'
        % (A, A, A)
    ).encode()
    ROWS = (
        '{"resource_providers": [{"uuid": "%s", "name": "a", "generation": 1,'
        ' "parent_provider_uuid": null, "root_provider_uuid": "%s"}]}' % (A, A)
    ).encode()

    def readers(read):
        together = threading.Barrier(8)
        def run():
            together.wait()
            read()
        threads = [threading.Thread(target=run) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def first(read):
        child = os.fork()
        if not child:
            sys.setswitchinterval(1e-6)
            readers(read)
            os._exit(0)
        return os.waitpid(child, 0)[1]

    ends = [first(lambda: answers.decode(ROWS, answers.Rows)) for _ in range(40)]
    ends += [first(lambda: read_json(CLAIM, NewClaim)) for _ in range(20)]
    sys.exit(f"{sum(map(bool, ends))} of {len(ends)} crashed" if any(ends) else 0)
    """
)


def test_threads_that_read_the_first_documents_at_once_do_not_crash_the_process() -> None:
    # In a process of its own, because this one has read such documents before.
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIRST_READERS], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
