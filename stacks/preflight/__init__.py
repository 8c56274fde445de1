"""What is checked before anything is made: settings, limits, prices, what a change would remove."""
