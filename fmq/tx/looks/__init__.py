"""Looking up state and messages. Nothing here makes a change."""
