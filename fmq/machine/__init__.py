"""What is asked of the machine: its disk, and how that is mounted."""
