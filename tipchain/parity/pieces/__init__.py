"""Loss, optimizer and schedule of live models, each compared by itself, and the one knob that explains a difference."""
