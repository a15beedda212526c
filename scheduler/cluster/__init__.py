"""The only door to Kubernetes: client, watch and the live Snapshot."""
