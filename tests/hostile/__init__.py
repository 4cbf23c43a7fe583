"""An attack on everything that tipchain reads: files changed at random, each under limits of time and memory."""
