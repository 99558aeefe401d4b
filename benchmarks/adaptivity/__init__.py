"""How the cluster adapts, played in virtual time with the real decisions and measured costs."""
