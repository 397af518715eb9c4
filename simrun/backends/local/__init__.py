"""The local engine: attempts as supervised processes of this machine."""
