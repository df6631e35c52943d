"""What is asked: families of queries, groups of them on attribute sets, and workloads."""
