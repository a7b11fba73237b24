"""How a guest's CPUs and memory are spread over its cells."""

from collections.abc import Mapping

from agent.model.cpu_list import parse_cpu_list
from agent.numa.asked import Asked
from agent.numa.guest import GuestCell
from agent.numa.request_error import RequestError


def guest_cells(asked: Asked, vcpus: int, memory_mib: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    """The cells, evenly or as flavor or image say.

    :raises RequestError: that does not add up.
    """
    nodes = _nodes(asked)
    cpus, memory = _numbered(asked, "numa_cpus", nodes), _numbered(asked, "numa_mem", nodes)
    if cpus or memory:
        spread = _as_given(cpus, memory, nodes, vcpus, memory_mib)
    else:
        if vcpus % nodes or memory_mib % nodes:
            why = f"{vcpus} CPUs and {memory_mib} MiB cannot be divided by it"
            raise RequestError("Asymmetric", "hw:numa_nodes", nodes, why, "hw:numa_cpus.N, hw:numa_mem.N")
        each = vcpus // nodes
        spread = [(frozenset(range(one * each, one * each + each)), memory_mib // nodes) for one in range(nodes)]
    return tuple(GuestCell(shared=one - dedicated, dedicated=one & dedicated, memory_mib=size) for one, size in spread)


def overlooked(asked: Asked) -> list[str]:
    """The keys of cells that the guest does not have; they have no effect, which is hardly what was meant."""
    nodes = _nodes(asked)
    starts = ("hw:numa_cpus.", "hw:numa_mem.", "hw_numa_cpus.", "hw_numa_mem.")
    keys = [key for key in (*asked.specs, *asked.properties) if key.startswith(starts)]
    return sorted(key for key in keys if not (number := key.rpartition(".")[2]).isdecimal() or int(number) >= nodes)


def _nodes(asked: Asked) -> int:
    text = asked.only_one("numa_nodes", "TopologyForbidden")
    if text is None:
        return 1
    if not text.strip().isdecimal() or int(text) < 1:
        raise RequestError("InvalidNodes", "hw:numa_nodes", text, "no number of cells", "1 or more")
    return int(text)


def _numbered(asked: Asked, name: str, nodes: int) -> Mapping[int, str]:
    """The values of ``name.0``, ``name.1``, ...: from one of flavor and image, up to the first gap."""
    values = {}
    for number in range(nodes):
        value = asked.only_one(f"{name}.{number}", "TopologyForbidden")
        if value is None:
            break
        values[number] = value
    return values


def _as_given(cpus: Mapping[int, str], memory: Mapping[int, str], nodes: int, vcpus: int, memory_mib: int) -> list[tuple[frozenset[int], int]]:
    for name, values in (("numa_cpus", cpus), ("numa_mem", memory)):
        if len(values) != nodes:
            why, allowed = f"the guest has {nodes} cells", "CPUs and memory for all cells, or for none"
            raise RequestError("Incomplete", f"hw:{name}.{len(values)}", "not set", why, allowed)
    spread, seen, total = [], frozenset[int](), 0
    for number in range(nodes):
        key, one = f"hw:numa_cpus.{number}", _cpus(cpus[number], number)
        if any(cpu >= vcpus for cpu in one):
            raise RequestError("CpuOutOfRange", key, cpus[number], f"the guest has no CPU {max(one)}", f"0 to {vcpus - 1}")
        if seen & one:
            raise RequestError("CpuDuplicate", key, cpus[number], f"CPU {min(seen & one)} is in another cell already", "each CPU once")
        if not memory[number].strip().isdecimal():
            raise RequestError("MemoryMismatch", f"hw:numa_mem.{number}", memory[number], "no number of MiB", "MiB")
        seen, total = seen | one, total + int(memory[number])
        spread.append((one, int(memory[number])))
    if missing := frozenset(range(vcpus)) - seen:
        raise RequestError("CpuUnassigned", "hw:numa_cpus", ", ".join(cpus.values()), f"CPU {min(missing)} is in no cell", "each CPU once")
    if total != memory_mib:
        raise RequestError("MemoryMismatch", "hw:numa_mem", total, f"the flavor has {memory_mib} MiB", str(memory_mib))
    return spread


def _cpus(text: str, number: int) -> frozenset[int]:
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        raise RequestError("CpuOutOfRange", f"hw:numa_cpus.{number}", text, str(error), "a CPU list") from error
