"""Systems that are not ours: the recorder, transcripts, the ledger file, and a recorded training as a system."""
