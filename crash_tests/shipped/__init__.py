"""Stories of a journal that is shipped elsewhere."""
