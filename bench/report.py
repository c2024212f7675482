def table(results): return ""
