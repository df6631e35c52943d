"""Studio: a local page in the browser, from a codebook to a signed-off publication. See `app.py`."""
