"""Numbers: dumps, facts about differences, what is accepted, verdicts. No framework is loaded."""
