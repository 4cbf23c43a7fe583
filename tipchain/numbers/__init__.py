"""Numbers: dumps, facts about differences, tolerances, verdicts. No framework is loaded."""
