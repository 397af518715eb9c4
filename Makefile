# Everything a developer types. CI calls these very targets.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
