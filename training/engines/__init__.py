"""Training engines, one file each: settings, update rule, ledger, claims."""
