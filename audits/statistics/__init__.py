"""Statistics of audits and attacks: bounds on ε and μ, intervals, p-values and their correction."""
