"""What keeps pods waiting, and what would help them."""
