"""How the cluster adapts, simulated in virtual time with the real decisions and measured costs."""
