"""The run store: a directory that the service and all pods share."""
