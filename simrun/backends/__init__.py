"""What runs the pods of a run: Kubernetes (Argo and Kueue) or the engine on this machine."""
