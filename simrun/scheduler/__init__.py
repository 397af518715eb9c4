"""Launch plans and their schedules."""
