"""The commands to take a host over from nova-compute, and to give it back."""
