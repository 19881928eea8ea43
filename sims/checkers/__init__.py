"""Promises that are checked in every simulation: those of any conversation, and each conversation's own."""
