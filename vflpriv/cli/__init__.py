"""The command line: `main` has the program, `options` what commands share, the other modules one group of commands."""
