"""What the members of a group have in hand, and which message comes next."""
