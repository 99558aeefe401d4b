"""Every metric of every service; the names are a contract with dashboards and alerts."""
