"""Plain SQL over live sources as exact, self-updating tables inside Dagster."""
