"""Clients of a served export, and a load test: see README.md."""
