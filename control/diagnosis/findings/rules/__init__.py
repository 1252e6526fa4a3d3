"""Rules, one in each file: a function of the evidence and the objectives, with its reasons and their source."""
