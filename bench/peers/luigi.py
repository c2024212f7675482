class Luigi: pass
