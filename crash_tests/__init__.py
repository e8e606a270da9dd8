"""Breaking fmq on purpose: crash states, faults and kills, and an oracle that forgets nothing."""
