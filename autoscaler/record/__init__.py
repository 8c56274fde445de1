"""What was decided, written down: decisions as lines of compressed JSON, read again, and decided again."""
