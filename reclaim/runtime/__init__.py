"""The engine's side: scratch, plans, the workspace manager and the reclaimer that wraps forwards."""
