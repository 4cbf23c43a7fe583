"""What a case says about its stages, a module for each key of the case file."""
