"""Finding records: the index of each segment, of all, and of the ids that are taken."""
