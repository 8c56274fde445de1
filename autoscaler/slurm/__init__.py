"""Slurm's cloud nodes: its power saving says which are wanted, the one planner what is bought for them.

``controller`` is the door to slurmctld, ``demand`` makes of its nodes the look that the planner takes, ``reconcile``
carries the plan out, and ``config`` writes what slurm.conf has to say. Own machines are Slurm's alone.
"""
