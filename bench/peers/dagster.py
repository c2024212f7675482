class Dagster: pass
