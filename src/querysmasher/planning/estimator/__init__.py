"""The best linear unbiased estimate of any query: plans predict with it, releases answer with it."""
