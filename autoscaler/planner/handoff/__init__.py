"""What the scheduler is told of a plan: gates lifted, nodes reserved, nominations, time to try."""
