"""Words that every part of simrun uses: errors, clock, ids. Imports nothing else of simrun."""
