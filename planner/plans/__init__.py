"""What we choose: settings, their predicted memory and speed, the decisions and the plan. Frozen values."""
