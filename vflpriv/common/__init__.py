"""What every other room uses: file writing, number formats, random streams, the registry."""
