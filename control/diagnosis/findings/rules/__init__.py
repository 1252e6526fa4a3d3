"""Rules, one per file: each is a function of the evidence and the objectives, with its reasons and their source."""
