"""The ground of every room: files, machine, environment, language, progress, and the ends of exceptions."""
