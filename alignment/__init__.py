"""Alignment cases: for each model a torch side and a Paddle side."""
