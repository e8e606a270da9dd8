"""Groups, consumers, deliveries and acks."""
