"""Messages wait for their time, and the power fails at each step."""
