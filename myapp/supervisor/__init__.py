"""`cube up`: one parent that starts the platform's parts on this machine, keeps them alive and ends them together."""
