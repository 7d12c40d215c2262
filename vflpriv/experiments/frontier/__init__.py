"""`vflpriv frontier`: candidates to compare, the search for the best at each ε, its audits, the result and its page."""
