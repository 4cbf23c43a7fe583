"""What every room stands on: files, machine, environment, language, progress, and what becomes of exceptions."""
