"""The Paddle side's programs, which ``tools/*.py`` start: train, evaluate, export, infer. None imports torch."""
