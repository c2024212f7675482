"""The process that stands beside each local rank. Standard library only; never imports the platform."""
