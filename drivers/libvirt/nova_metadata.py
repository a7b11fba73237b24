"""What nova wrote beside a guest: its flavor, and whose it is."""

from agent.model.domain import Origin
from agent.model.flavor import Flavor
from drivers.libvirt.xml import Element, child, fault, natural

# A version is behind it: 1.0 with older novas, 1.1 with newer ones.
_NAMESPACE = "{http://openstack.org/xmlns/libvirt/nova/"


def origin_of(domain: Element, what: str) -> Origin | None:
    """What the domain was made from and for whom; None if nova did not say both.

    :raises DriverError: it is garbled.
    """
    instance = next((one for one in domain.iterfind("metadata/*") if one.tag.startswith(_NAMESPACE) and one.tag.endswith("}instance")), None)
    if instance is None:
        return None
    space = {"nova": instance.tag[1:].partition("}")[0]}
    flavor, project, user = (instance.find(path, space) for path in ("nova:flavor", "nova:owner/nova:project", "nova:owner/nova:user"))
    if flavor is None or project is None or user is None:
        return None
    root = instance.find("nova:root", space)
    return Origin(
        flavor=_flavor(flavor, space, f"{what}: flavor in the metadata"),
        project_id=project.get("uuid", ""),
        user_id=user.get("uuid", ""),
        # For a root disk of its own nova names the image.
        volume_backed=root is None or root.get("type") != "image" or not root.get("uuid"),
    )


def _flavor(element: Element, space: dict[str, str], what: str) -> Flavor:
    name = element.get("name", "")
    if not name:
        raise fault(what, "it has no name")
    specs = ((one.get("name", ""), (one.text or "").strip()) for one in element.findall("nova:extraSpecs/nova:extraSpec", space))

    def amount(field: str) -> int:
        found = element.find(f"nova:{field}", space)
        return 0 if found is None else natural(found.text, f"{what}: {field}")

    vcpus, memory = (natural(child(element, f"{{{space['nova']}}}{field}", what).text, f"{what}: {field}") for field in ("vcpus", "memory"))
    return Flavor(
        # Older novas write only the name, which tells flavors apart as well.
        id=element.get("id") or name,
        name=name,
        vcpus=vcpus,
        memory_mb=memory,
        root_gb=amount("disk"),
        ephemeral_gb=amount("ephemeral"),
        swap_mb=amount("swap"),
        extra_specs={key: value for key, value in specs if key},
    )
