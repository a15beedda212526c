"""What a Change would do to the cluster, found out before it is published."""
