"""What callers give, checked: names, paths and options."""
