"""Plots of the pages and of `vflpriv account --curves`."""
