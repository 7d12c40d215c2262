"""What a server learns from where nobody trains it: features as they are, low frequencies, wavelets, principal axes."""
