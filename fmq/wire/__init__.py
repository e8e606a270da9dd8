"""The protocol between a client and the engine process: frames, values and messages as bytes."""
