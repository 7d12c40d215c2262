"""Output formats, one module each: the module's name is what `--format` takes (`vflpriv.report.formats`)."""
