"""Groups, deliveries and acks."""
