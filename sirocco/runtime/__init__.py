"""The shell: carries out what the pure core decides, on real logs, stores and sockets."""
