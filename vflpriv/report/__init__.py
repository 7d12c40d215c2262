"""Results as versioned data, and the comparison of two of them."""
