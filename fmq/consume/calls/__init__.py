"""What a program does with what a group has for it: poll, handle, ack and give back."""
