"""What people read: pages about plans and releases, and tables in notebooks."""
