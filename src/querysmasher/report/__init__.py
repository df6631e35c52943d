"""What a person looks at: pages about plans and releases, and tables in notebooks."""
