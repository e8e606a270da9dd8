"""Looking into the state and the messages, without a change."""
