"""compute-node-agent: keeps OpenStack Placement true for a hypervisor."""
