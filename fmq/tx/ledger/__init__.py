"""The one state: what the journal says so far. It knows no file, no thread and no clock."""
