"""The parts of an answer to one question, by kind of query."""
