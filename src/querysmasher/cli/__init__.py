"""The command `querysmasher`: makes plans, releases and answers from spec files. See `app.py`."""
