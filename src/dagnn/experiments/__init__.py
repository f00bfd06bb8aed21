"""The paper's tables and figures: which runs they need, running them, and reporting."""
