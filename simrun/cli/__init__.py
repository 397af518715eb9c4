"""The command line. Data goes to stdout, progress to stderr."""
