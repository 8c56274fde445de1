"""The commands `spillway autoscale`, `policy`, `slurm`, `gpus` and `top`."""
