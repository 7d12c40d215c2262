"""Data sets: the catalogue, where they are fetched from, how their files are read and split over devices."""
