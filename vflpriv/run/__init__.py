"""What the commands do: audit, attack, account, train."""
