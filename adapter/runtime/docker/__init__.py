"""Workloads in Docker: the containers, their images, and the one door to docker-py's errors."""
