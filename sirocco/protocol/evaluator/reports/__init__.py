"""What evaluators report to mergers: matches, steps, parts of lists."""
