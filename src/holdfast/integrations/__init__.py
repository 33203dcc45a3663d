"""Agents written with other frameworks, made durable through each framework's own hooks."""
