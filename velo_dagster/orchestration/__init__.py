"""The project as a Dagster code location. The only room that imports dagster."""
