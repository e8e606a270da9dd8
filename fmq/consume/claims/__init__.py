"""What the members of a group have in hand, and what comes next."""
