"""Message ids on a disk that crashes."""
