"""nova-compute with the agent's mirror, plan and flush in place of its own report to Placement.

The only package of the agent that imports nova. It is imported where nova runs, and by no other
package.
"""
