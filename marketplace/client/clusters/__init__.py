"""Clusters at whoever pays for them: when their members run, and when they are held."""
