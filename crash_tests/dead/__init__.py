"""Dead letters on a disk that crashes."""
