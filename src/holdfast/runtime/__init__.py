"""Processes: signals, devices, Ray, dry runs, progress, plug-ins."""
