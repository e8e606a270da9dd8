"""The tier `home`: machines that share a home are lost, paused, and take over from each other."""
