"""compute-node-agent: keeps OpenStack Placement in step with a hypervisor."""
