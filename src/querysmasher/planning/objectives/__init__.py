"""What a plan minimises: the mean error, the largest error, or the budget."""
