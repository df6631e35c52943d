"""Statistics of a release: cross-tables, means, shares, ratios and quantiles, each with its error."""
