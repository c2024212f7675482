class Prefect: pass
