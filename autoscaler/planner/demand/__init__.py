"""What pods ask for: gangs, classes of equal pods, rules between pods."""
