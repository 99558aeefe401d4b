"""The evaluator's decisions: reading slots, matching, reporting, handing over."""
