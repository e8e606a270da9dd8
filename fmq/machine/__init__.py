"""What fmq needs of the machine: its disk, and how the disk is mounted."""
