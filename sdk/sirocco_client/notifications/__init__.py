"""Subscriptions and what they receive."""
