"""What makes an object deadly, in the processes that are tried."""
