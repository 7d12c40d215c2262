"""Two trainings in neighbouring worlds with the same randomness: probes at release points, and what differs."""
