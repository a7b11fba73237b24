"""[libvirt]: what nova keeps there and is true of every hypervisor."""

from oslo_config import cfg

GROUP = "libvirt"

OPTIONS = [
    cfg.IntOpt(
        "num_memory_encrypted_guests", min=0,
        help=(
            "How many guests may have memory encrypted by SEV or TDX at once, if that is less than the host says, or the host does not say. "
            "It is no limit of SEV-ES and SEV-SNP."
        ),
    ),
]  # fmt: skip
