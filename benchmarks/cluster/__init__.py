"""Several hosts with a network of a chosen speed, emulated on one Linux machine."""
