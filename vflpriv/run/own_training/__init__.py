"""Audits of a user's own training function: one recorded training, and many in two neighbouring worlds."""
