"""The DAG recurrence: the one operation everything rests on."""
