"""After the noise: post-processing only."""
