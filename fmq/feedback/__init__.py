"""What becomes of the undecided: who is asked about which of them, when, and what they answer."""
