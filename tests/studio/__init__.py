"""Studio, attacked and used: by requests, in processes, in a real browser."""
