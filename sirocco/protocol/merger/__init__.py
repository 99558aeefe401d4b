"""The merger's decisions: reports of slots become notifications, exactly once."""
