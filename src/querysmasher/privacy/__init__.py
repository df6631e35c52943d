"""The audit surface: a reviewer of the privacy claim reads this folder and nothing else."""
