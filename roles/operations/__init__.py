"""pyinfra operations that the stock ones do not offer: whole-file writes, and services that restart for a reason."""
