"""The parameters of a conversation as the settings choose them: policies, schedules and pace."""
