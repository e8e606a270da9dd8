"""What a client and the engine process say to each other: frames, values and messages as bytes."""
