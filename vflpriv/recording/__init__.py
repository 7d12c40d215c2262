"""Systems of users: the recorder, the transcript format and its reader, the ledger file, and recorded trainings."""
