"""The cases of numa_fit, as nova 34 decides them; for a Python that has nova. Cases come as JSON,
milliseconds go as JSON.
"""

import itertools
import json
import logging
import sys
import time
from typing import Any

import nova.conf
from nova import objects
from nova.pci import stats, whitelist
from nova.virt import hardware

CPUS = 16
REPEATS = 5


def host(case: dict[str, Any]) -> Any:
    cells = []
    for number in range(case["host"]):
        cpus = list(range(CPUS * number, CPUS * number + CPUS))
        taken = CPUS if number in case["full"] else case["used"].get(str(number), 0)
        cells.append(
            objects.NUMACell(
                id=number,
                cpuset=set(),
                pcpuset=set(cpus),
                memory=65536,
                memory_usage=0,
                cpu_usage=0,
                pinned_cpus=set(cpus[:taken]),
                socket=number // 8,
                siblings=[{cpu, cpu + 1} for cpu in cpus[::2]],
                mempages=[
                    objects.NUMAPagesTopology(size_kb=4, total=65536 * 256, used=0, reserved=0)
                ],
            )
        )
    return objects.NUMATopology(cells=cells)


def guest(case: dict[str, Any]) -> Any:
    sizes = itertools.islice(itertools.cycle(case["sizes"]), case["guest"])
    ends = list(itertools.accumulate(sizes, initial=0))
    return objects.InstanceNUMATopology(
        emulator_threads_policy=None,
        cells=[
            objects.InstanceNUMACell(
                id=number,
                cpuset=set(),
                pcpuset=set(range(start, end)),
                memory=1024,
                pagesize=None,
                cpu_policy="dedicated",
                cpu_thread_policy=None,
                cpu_pinning_raw=None,
                cpuset_reserved=None,
            )
            for number, (start, end) in enumerate(itertools.pairwise(ends))
        ],
    )


def device(address: str, cell: int, kind: str, parent: str | None) -> Any:
    product = "1572" if kind == "type-PF" else "154c"
    return objects.PciDevice(
        compute_node_id=1,
        address=address,
        vendor_id="8086",
        product_id=product,
        dev_type=kind,
        numa_node=cell,
        status="available",
        parent_addr=parent,
        extra_info={},
    )


def pools(case: dict[str, Any]) -> Any:
    found = stats.PciDeviceStats(objects.NUMATopology(cells=[]), dev_filter=whitelist.Whitelist())
    for number, (cell, functions) in enumerate(case["cards"]):
        where = f"{number // 256:04x}:{number % 256:02x}:"
        parent = f"{where}00.0"
        vfs = [
            device(f"{where}{1 + one // 8:02x}.{one % 8}", cell, "type-VF", parent)
            for one in range(functions)
        ]
        for kind, product, devices in (
            ("type-PF", "1572", [device(parent, cell, "type-PF", None)]),
            ("type-VF", "154c", vfs),
        ):
            tags = {
                "physical_network": "datacentre",
                "trusted": "true",
                "remote_managed": "false",
                "address": parent,
            }
            pool = {
                "vendor_id": "8086",
                "product_id": product,
                "numa_node": cell,
                "dev_type": kind,
                "count": len(devices),
                "devices": devices,
                **tags,
            }
            found.pools.append(pool)
    return found


def requests(case: dict[str, Any]) -> list[Any]:
    products = {"pf": ("1572", "type-PF"), "vf": ("154c", "type-VF")}
    return [
        objects.InstancePCIRequest(
            count=one["count"],
            alias_name="a",
            numa_policy=one["policy"],
            request_id=f"7f52a6d0-0000-4000-8000-00000000000{number}",
            spec=[
                dict(
                    zip(("product_id", "dev_type"), products[one["kind"]], strict=True),
                    vendor_id="8086",
                )
            ],
        )
        for number, one in enumerate(case["wanted"])
    ]


def milliseconds(case: dict[str, Any]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        cells, asked, free, wanted = host(case), guest(case), pools(case), requests(case)
        begun = time.process_time()
        hardware.numa_fit_instance_to_host(
            cells,
            asked,
            provider_mapping=None,
            pci_requests=wanted or None,
            pci_stats=free if wanted else None,
        )
        best = min(best, time.process_time() - begun)
    return 1000 * best


def main() -> None:
    nova.conf.CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    objects.register_all()
    print(json.dumps({case["name"]: milliseconds(case) for case in json.load(sys.stdin)}))


if __name__ == "__main__":
    main()
