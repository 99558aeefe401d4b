"""What the console shows of the cluster: `GET /v1/live`."""
