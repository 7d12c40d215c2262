"""Results for people and for programs: `formats/` has one module per output format, the others are what they share."""
