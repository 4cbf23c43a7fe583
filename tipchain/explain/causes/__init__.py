"""Causes of a layer's fault: it is rerun with one change until it agrees."""
