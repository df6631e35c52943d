"""The best linear unbiased estimate of any query from all measurements: plans predict with it, releases answer with it."""
