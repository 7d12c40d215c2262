"""Data sets: the catalogue, and how its entries are fetched, read, and split over devices."""
