"""Stores of clusters, as folders on a member's host: rclone mounts them, and what it may connect to
is the owner's say.
"""
