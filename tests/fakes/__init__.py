"""Stand-ins for what no local stack needs; ``SPILLWAY_FAKES=tests.fakes`` adds them to those of ``stacks/local``."""
