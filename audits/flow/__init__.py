"""Where every value on the wire came from: the private data, the random draws and each operation between them."""
