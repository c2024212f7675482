class Airflow: pass
