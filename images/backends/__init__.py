"""Where jobs run, a door each."""
