"""How far a value can move when private data change, proved along the operations that compute it."""
