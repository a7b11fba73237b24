"""A host that is started under another name than nova knows it by, with nova's own functional
services. Run with the engine in place: ``python -m tests.nova.run tests.nova.renamed_host``.
"""

from typing import Any
from uuid import uuid4

import fixtures
from nova import exception
from nova.tests.functional import integrated_helpers


class RenamedHost(integrated_helpers.ProviderUsageBaseTestCase):  # type: ignore[misc]
    """One host with a server; its nova-compute was stopped, and did not start again under a new
    name.
    """

    compute_driver = "fake.FakeDriverWithoutFakeNodes"

    def setUp(self) -> None:
        """Build the server, stop the host, and see that it does not start as another one."""
        super().setUp()
        self.compute_id = str(uuid4())
        for read in ("read_local_node_uuid", "get_local_node_uuid"):
            patch = fixtures.MockPatch(f"nova.virt.node.{read}", lambda: self.compute_id)
            self.useFixture(patch)
        self.compute: Any = self._start_compute("old")
        flavor = self._create_flavor(vcpu=1, memory_mb=512, disk=1, ephemeral=0)
        self.server = self._create_server(flavor_id=flavor, networks="none")
        before = self.placed()
        self.compute.stop()
        with self.assertRaisesRegex(exception.InvalidConfiguration, "Possible rename detected"):
            self._start_compute("new")
        self.assertEqual(before, self.placed())

    def placed(self) -> list[Any]:
        """Return what Placement has: the providers, and what the host's gives."""
        names = [(row["uuid"], row["name"]) for row in self._get_all_providers()]
        return [names, self._get_provider_usages(self.compute_id)]

    def test_with_its_old_name_it_goes_on(self) -> None:
        """The first way out."""
        self.compute = self.restart_compute_service(self.compute)
        self._run_periodics()
        self._delete_server(self.server)
        self.assertEqual(0, self._get_provider_usages(self.compute_id)["VCPU"])

    def test_with_a_new_identity_it_is_a_new_host(self) -> None:
        """The second way out, for a host whose servers were moved away."""
        self.compute = self.restart_compute_service(self.compute)
        self._delete_server(self.server)
        self.compute.stop()
        (service,) = self.admin_api.get_services(binary="nova-compute", host="old")
        self.admin_api.api_delete(f"/os-services/{service['id']}")
        self.assertEqual([], self._get_all_providers())
        self.compute_id = str(uuid4())
        del self.computes["old"]
        self._start_compute("new")
        self._run_periodics()
        self.assertEqual([self.compute_id], [row["uuid"] for row in self._get_all_providers()])
        self.assertIn("VCPU", self._get_provider_inventory(self.compute_id))
