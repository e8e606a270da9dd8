"""A home: storage beyond this machine that acknowledges what an engine writes. See docs/home.md."""
