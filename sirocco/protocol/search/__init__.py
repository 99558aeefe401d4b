"""A search: its plan, its messages, and how the answers of slots become one."""
