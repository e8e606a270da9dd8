"""Messages are erased on a disk that crashes."""
