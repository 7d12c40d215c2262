"""`vflpriv reproduce`: profiles of published tables, their trainings, the result beside printed figures, its page."""
