"""What the autoscaler tells: log, metrics, Events, notifications, and the ledger of what nodes cost."""
