"""What a program does with the messages of its group: poll, handle, ack and give back."""
