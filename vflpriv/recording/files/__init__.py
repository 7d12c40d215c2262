"""The files of a transcript: their format, how they are written in the background, and read in a stream."""
