"""What the first page of a report adds to the results: what to change, and hashes of what was audited."""
