"""Tests of motley.functional."""
