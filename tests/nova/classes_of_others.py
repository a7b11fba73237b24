"""Builds by nova's own functional services where somebody else has put an inventory on the compute
node's provider. Run with the engine in place: ``python -m tests.nova.run tests.nova.classes_of_others``.
"""

from typing import Any

from nova.tests.functional import integrated_helpers

LICENCE, SPARE, DROPPED = "CUSTOM_LICENCE", "CUSTOM_SPARE", "CUSTOM_DROPPED"


class ClassesOfOthers(integrated_helpers.ProviderUsageBaseTestCase):  # type: ignore[misc]
    """One host, on which another service counts licences."""

    compute_driver = "fake.MediumFakeDriver"

    def setUp(self) -> None:
        """Start the host."""
        super().setUp()
        self.compute: Any = self._start_compute("host1")
        self.root = self._get_provider_uuid_by_host("host1")

    def put(self, name: str) -> None:
        """Put an inventory of this class on the host's provider, as another service does."""
        self._create_resource_class(name)
        inventories = {**self._get_provider_inventory(self.root), name: {"total": 4}}
        generation = self.placement.get(f"/resource_providers/{self.root}").body["generation"]
        self._update_inventory(
            self.root, {"inventories": inventories, "resource_provider_generation": generation}
        )

    def build(self, **extra: str) -> Any:
        """Build a server; nova's helper fails unless it becomes active."""
        flavor = self._create_flavor(vcpu=1, memory_mb=512, disk=1, ephemeral=0, extra_spec=extra)
        return self._create_server(flavor_id=flavor, networks="none")

    def test_what_others_put_on_a_host_stays_and_builds_go_on(self) -> None:
        """Before the first guest, with one and after the last."""
        for name in (LICENCE, SPARE):
            self.put(name)
        first = self.build(**{f"resources:{LICENCE}": "1"})
        self.build()
        self._run_periodics()
        self.assertLessEqual({LICENCE, SPARE}, self._get_provider_inventory(self.root).keys())
        self.assertEqual(1, self._get_provider_usages(self.root)[LICENCE])
        # What nova writes beside it arrives.
        self.flags(reserved_host_memory_mb=64)
        self._run_periodics()
        self.assertEqual(64, self._get_provider_inventory(self.root)["MEMORY_MB"]["reserved"])
        self._delete_server(first)
        self._run_periodics()
        self.assertLessEqual({LICENCE, SPARE}, self._get_provider_inventory(self.root).keys())
        self.assertIn("somebody else put it there", self.stdlog.logger.output)

    def test_what_the_driver_had_and_a_server_uses_stays_until_the_server_is_gone(self) -> None:
        """It goes as with nova's own report, and keeps nothing else from being written."""
        driver, update = self.compute.driver, type(self.compute.driver).update_provider_tree
        listed = True
        self._create_resource_class(DROPPED)

        def with_more(tree: Any, nodename: str, allocations: Any = None) -> None:
            update(driver, tree, nodename, allocations)
            if listed:
                more = {DROPPED: {"total": 4}, SPARE: {"total": 4}}
                tree.update_inventory(nodename, {**tree.data(nodename).inventory, **more})

        driver.update_provider_tree = with_more
        self._run_periodics()
        server = self.build(**{f"resources:{DROPPED}": "1"})
        listed = False
        self.build()
        self.flags(reserved_host_memory_mb=64)
        self._run_periodics()
        inventory = self._get_provider_inventory(self.root)
        self.assertEqual(64, inventory["MEMORY_MB"]["reserved"])
        self.assertIn(DROPPED, inventory)
        self.assertNotIn(SPARE, inventory)
        self._delete_server(server)
        self.restart_compute_service(self.compute)
        self._run_periodics()
        self.assertNotIn(DROPPED, self._get_provider_inventory(self.root))
