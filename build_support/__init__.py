"""What setup.py is made of. Not installed."""
