"""Offline: replay traces against policies, compare them, draw them. No torch."""
