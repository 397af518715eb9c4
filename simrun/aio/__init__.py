"""Tools for asyncio that know nothing of simulations."""
