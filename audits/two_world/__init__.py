"""The two-world audit: many trainings in two neighbouring worlds, and how well a view tells them apart.

To understand it, read in this order: `audit` (from claims to findings), `plan` (which trainings are made, for whom),
`methods` (one class for each way to score a view), `canaries` (what differs between the worlds), `scores` (the
likelihood ratio, what a view shows of the canary), `trials` (the bounds that scores give) and `findings`. The others
are details: `shards` (trainings as tasks), `replay` (trials that are not trained), `whole_view` (a score learned from
all that an adversary sees). Probes at release points, which put a canary into its world, are in
`vflpriv.audits.twins.probes`.
"""

from vflpriv.audits.two_world.audit import TwoWorldAudit

__all__ = ["TwoWorldAudit"]
